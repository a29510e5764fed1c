// SPDX-License-Identifier: Apache-2.0
//
// What the shares of this node use, for hami-scheduler's page: a picture as a report (device/use_report.h). Pure. Holds
// what is known alone: no container without a region, and no UUID that neither the grant nor the driver knows.

#pragma once

#include "device/use_report.h"
#include "monitor/picture.h"

namespace hami::monitor {

device::UseReport UseOf(const Picture& picture);

}  // namespace hami::monitor
