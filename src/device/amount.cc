// SPDX-License-Identifier: Apache-2.0

#include "device/amount.h"

#include <algorithm>
#include <string>

#include "base/strings.h"
#include "base/units.h"
#include "device/quantity.h"

namespace hami::device {
namespace {

using base::Concat;
using base::Fail;
using base::Result;

constexpr auto kBytesOfMiB = static_cast<std::int64_t>(base::kMiB);
constexpr const char* kUnits = "a plain number counts MiB; Mi, Gi and Ti count bytes";

Result<Memory> OfBytes(const Quantity& quantity, MiB most) {
  const MiB mib = quantity.Floor() / kBytesOfMiB;
  if (mib == 0 && quantity.value > 0) return Fail("is less than 1 MiB", kUnits);
  if (mib > most) return Fail("is more than there can be", kUnits);
  return Memory{mib, true};
}

// Whoever writes so many MiB counted bytes.
tl::unexpected<base::Error> TooMany(std::int64_t value) {
  const std::string mib = std::to_string(std::max<std::int64_t>(value / kBytesOfMiB, 1));
  return Fail("is too many MiB", Concat({"if bytes are meant, write ", mib, "Mi"}));
}

}  // namespace

Result<Memory> ReadMemory(std::string_view text, std::int64_t factor, MiB most) {
  const Result<Quantity> quantity = ParseQuantity(text);
  if (!quantity) return Fail("is no amount", kUnits);
  if (quantity->value < 0) return Fail("is less than nothing", kUnits);
  if (quantity->binary) return OfBytes(*quantity, most);
  if (!quantity->whole) return Fail("is no whole number", kUnits);
  if (quantity->value > most / std::max<std::int64_t>(factor, 1)) return TooMany(quantity->value);
  return Memory{quantity->value * std::max<std::int64_t>(factor, 1), false};
}

Result<std::int64_t> ReadCount(std::string_view text, std::int64_t most) {
  const Result<Quantity> quantity = ParseQuantity(text);
  if (!quantity || !quantity->whole) return Fail("is no whole number");
  if (quantity->value < 0 || quantity->value > most) return Fail(Concat({"is not from 0 to ", std::to_string(most)}));
  return quantity->value;
}

}  // namespace hami::device
