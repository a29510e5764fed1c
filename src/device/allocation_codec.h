// SPDX-License-Identifier: Apache-2.0
//
// What the scheduler writes on a pod: the grant of every container (`UUID,Type,memMiB,cores:` per card, `;` after each
// container) and the planned MIG instances. decode(encode(x)) = x for every grant whose texts hold no separator.
// Refuses what a reader could take for something else: an entry with too few fields or with numbers that are none.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"

namespace hami::device {

// Of one pod, and as many containers: a tenant may write anything on his pod, and all of it is kept.
inline constexpr std::size_t kMostShares = 2048;

std::string EncodeGrant(const PodGrant& grant);
// Tolerates the missing last `;`. The empty row that splitting leaves behind is not a container. More than kMostShares
// are an error.
base::Result<PodGrant> DecodeGrant(std::string_view text);

std::string EncodeReservations(const std::vector<MigReservation>& reservations);
base::Result<std::vector<MigReservation>> DecodeReservations(std::string_view text);

}  // namespace hami::device
