// SPDX-License-Identifier: Apache-2.0

#include "device/allocation_codec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <set>

#include "base/strings.h"
#include "device/json_fields.h"

namespace hami::device {
namespace {

using base::Fail;
using base::Result;
using base::Status;
namespace json = base::json;

Result<int> ReadAmount(std::string_view text, const char* what) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    return Fail(base::Concat({"pod annotation format error, ", what, " is not a number: ", base::Printable(text)}));
  }
  return number;
}

// Up to the next SEPARATOR, which goes with it. More: whether there was one.
std::string_view TakePart(std::string_view& text, char separator, bool& more) {
  const std::size_t at = text.find(separator);
  more = at != std::string_view::npos;
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(more ? at + 1 : text.size());
  return part;
}

// Each part that base::Split would make.
template <typename Each>
Status ForEachPart(std::string_view text, char separator, Each each) {
  for (bool more = !text.empty(); more;) HAMI_TRY(each(TakePart(text, separator, more)));
  return {};
}

Result<Share> ReadShare(std::string_view entry) {
  std::array<std::string_view, 4> fields;
  bool more = true;
  for (std::string_view& field : fields) {
    if (!more) return Fail("pod annotation format error, missing fields, do not use nodeName in task spec");
    field = TakePart(entry, ',', more);
  }
  Share share;
  share.uuid = fields[0];
  share.type = fields[1];
  const Result<int> memory = ReadAmount(fields[2], "memory");
  HAMI_TRY(memory);
  const Result<int> cores = ReadAmount(fields[3], "cores");
  HAMI_TRY(cores);
  share.memory = *memory;
  share.cores = *cores;
  return share;
}

Result<ContainerGrant> ReadContainer(std::string_view text) {
  ContainerGrant grant;
  const Status read = ForEachPart(text, ':', [&](std::string_view entry) -> Status {
    if (entry.empty()) return {};
    Result<Share> share = ReadShare(entry);
    HAMI_TRY(share);
    grant.push_back(std::move(*share));
    return {};
  });
  HAMI_TRY(read);
  return grant;
}

Result<MigReservation> ReadReservation(const json::object& object) {
  MigReservation out;
  const JsonFields fields(object, "mig allocation");
  constexpr std::int64_t kAny = std::numeric_limits<std::int32_t>::min();
  HAMI_TRY(fields.Number("containerIndex", out.container));
  HAMI_TRY(fields.Number("deviceIndex", out.device));
  HAMI_TRY(fields.Text("gpuUUID", out.gpu_uuid));
  HAMI_TRY(fields.Text("profile", out.profile));
  HAMI_TRY(fields.Text("migUUID", out.mig_uuid));
  HAMI_TRY(fields.Number("gpuInstanceID", out.gpu_instance, kAny));
  HAMI_TRY(fields.Number("computeInstanceID", out.compute_instance, kAny));
  if (const json::value* placement = fields.Get("placement")) {
    if (!placement->is_object()) return tl::unexpected(fields.Bad("placement", "an object").error());
    const JsonFields inner(placement->get_object(), "placement");
    HAMI_TRY(inner.Number("start", out.placement.start));
    HAMI_TRY(inner.Number("size", out.placement.size));
  }
  if (out.gpu_uuid.empty()) return Fail("mig allocation: gpuUUID is empty");
  if (out.profile.empty()) return Fail("mig allocation: profile is empty");
  if (out.placement.size == 0) return Fail("mig allocation: placement size is 0");
  const bool named = !out.mig_uuid.empty();
  const bool has_instance = fields.Get("gpuInstanceID") != nullptr;
  const bool has_compute = fields.Get("computeInstanceID") != nullptr;
  if (named != has_instance || named != has_compute) return Fail("mig allocation: runtime identity is incomplete");
  if (named && (out.gpu_instance < 0 || out.compute_instance < 0)) {
    return Fail("mig allocation: instance ids must not be negative");
  }
  return out;
}

}  // namespace

std::string EncodeGrant(const PodGrant& grant) {
  std::string out;
  for (const ContainerGrant& container : grant) {
    for (const Share& share : container) {
      out += base::Concat(
          {share.uuid, ",", share.type, ",", std::to_string(share.memory), ",", std::to_string(share.cores), ":"});
    }
    out += ';';
  }
  return out;
}

Result<PodGrant> DecodeGrant(std::string_view text) {
  PodGrant grant;
  const auto rows = static_cast<std::size_t>(std::count(text.begin(), text.end(), ';'));
  const auto shares = static_cast<std::size_t>(std::count(text.begin(), text.end(), ':'));
  if (rows > kMostShares || shares > kMostShares) {
    return Fail(base::Concat({"grant: ", std::to_string(rows), " containers and ", std::to_string(shares),
                              " shares, more than the ", std::to_string(kMostShares), " of a pod"}));
  }
  grant.reserve(rows + 1);
  const Status read = ForEachPart(text, ';', [&](std::string_view row) -> Status {
    Result<ContainerGrant> container = ReadContainer(row);
    HAMI_TRY(container);
    grant.push_back(std::move(*container));
    return {};
  });
  HAMI_TRY(read);
  if (!text.empty() && text.back() == ';') grant.pop_back();
  return grant;
}

std::string EncodeReservations(const std::vector<MigReservation>& reservations) {
  json::array list;
  for (const MigReservation& item : reservations) {
    json::object object{{"containerIndex", item.container},
                        {"deviceIndex", item.device},
                        {"gpuUUID", item.gpu_uuid},
                        {"profile", item.profile},
                        {"placement", {{"start", item.placement.start}, {"size", item.placement.size}}}};
    if (item.Realised()) {
      object.emplace("migUUID", item.mig_uuid);
      object.emplace("gpuInstanceID", item.gpu_instance);
      object.emplace("computeInstanceID", item.compute_instance);
    }
    list.push_back(std::move(object));
  }
  return json::serialize(list);
}

Result<std::vector<MigReservation>> DecodeReservations(std::string_view text) {
  std::vector<MigReservation> reservations;
  std::set<std::pair<int, int>> seen;
  const auto read = [&](const json::object& item) -> Status {
    Result<MigReservation> reservation = ReadReservation(item);
    HAMI_TRY(reservation);
    if (reservations.size() == kMostShares) return Fail("mig allocation: more instances than a pod can have");
    if (!seen.emplace(reservation->container, reservation->device).second) {
      return Fail("mig allocation: two for one device of a container");
    }
    reservations.push_back(std::move(*reservation));
    return {};
  };
  HAMI_TRY(ForEachObject(text, "mig allocations", read));
  return reservations;
}

}  // namespace hami::device
