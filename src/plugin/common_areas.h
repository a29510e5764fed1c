// SPDX-License-Identifier: Apache-2.0
//
// Where the containers that share a GPU tell each other about its time (region/common_area.h): one area for each card.
// It is handed out at a socket, and sealed, so that a container can write what it likes into it, but can not cut it
// short under the others, remove it or put another in its place. Only containers with a share of the card find its
// socket. Areas live as long as this object; containers that have one keep it, and move to the next one's by
// themselves.

#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace hami::plugin {

class CommonAreas {
 public:
  // The areas' folders are made below FOLDER.
  explicit CommonAreas(std::string folder) : folder_(std::move(folder)) {}
  ~CommonAreas();
  CommonAreas(const CommonAreas&) = delete;
  CommonAreas& operator=(const CommonAreas&) = delete;

  base::Status Start();
  // Makes the areas of CARDS that have none yet. What can not be made is an error, and is tried again by the next call.
  base::Status Offer(const std::vector<std::string>& cards);

  // The cards with an area.
  std::set<std::string> Cards() const;
  // What is mounted into a container: the folder of the card's socket, `area`.
  static std::string FolderOf(const std::string& root, const std::string& card) { return root + "/" + card; }

 private:
  struct Area {
    base::Fd memory;
    base::Fd socket;
  };
  base::Result<Area> Make(const std::string& card) const;
  void HandOut();

  const std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, Area> areas_;  // an area that was made stays
  base::Fd poll_;
  base::Fd stop_;
  std::thread thread_;
};

}  // namespace hami::plugin
