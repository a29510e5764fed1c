// SPDX-License-Identifier: Apache-2.0
//
// One mapping of a YAML file, read key by key against the list of keys that it may have. Owns the wording of errors:
// `FILE:LINE: PATH.KEY: what is wrong`. The first error wins, but for one about a key that is not there: it may be
// there under a wrong name. Reading goes on harmlessly after an error.

#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/go_yaml.h"

namespace hami::device {

class ConfigReader {
 public:
  ConfigReader(const YAML::Node& node, std::string file, std::string path);

  // Every key that is read below must be asked for; Finish() refuses the rest.
  void Text(const char* key, std::string& out);
  void Bool(const char* key, bool& out);
  void Integer(const char* key, std::int64_t& out);
  void Real(const char* key, double& out);
  void Texts(const char* key, std::vector<std::string>& out);
  // A known key that nothing acts upon, of a type that Go would read there; keeps scalars.
  void Keep(const char* key, GoType type = GoType::kAny, std::string* out = nullptr);
  // A list of mappings.
  void Each(const char* key, const std::function<void(ConfigReader&)>& read);
  // A list of lists of mappings, with every mapping read.
  void EachInner(const char* key, const std::function<void(ConfigReader&)>& read);
  void Section(const char* key, const std::function<void(ConfigReader&)>& read);
  bool Has(const char* key) const;

  void Fail(const char* key, const std::string& why);
  // Where KEY stands, or the mapping that lacks it.
  int Line(const char* key) const;
  // What Finish would report, which from then on is nobody's business any more but the caller's.
  std::optional<base::Error> TakeError();
  // Reports keys that were not asked for, and whatever went wrong before.
  base::Status Finish();

 private:
  std::optional<YAML::Node> Take(const char* key);
  base::Error ErrorAt(const YAML::Node& node, const std::string& path, const std::string& why) const;
  void FailAt(const YAML::Node& node, const std::string& path, const std::string& why);
  void Absorb(ConfigReader& inner);
  void ReadList(const YAML::Node& list, const std::string& path, const std::function<void(ConfigReader&)>& read);
  std::string Path(const std::string& key) const;
  template <typename T>
  void Scalar(const char* key, T& out, const char* wanted);

  YAML::Node node_;
  std::string file_;
  std::string path_;
  std::vector<std::string> known_;
  std::optional<base::Error> error_;
  std::optional<base::Error> missing_;  // about a key that is not there
  bool judged_ = false;                 // its keys, by TakeError
};

// Gives TEXT, which is one document and no more, to READ. What is no YAML is an error that names FILE and line.
base::Status ReadDocument(std::string_view text, const std::string& file,
                          const std::function<base::Status(const YAML::Node&)>& read);

}  // namespace hami::device
