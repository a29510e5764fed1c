// SPDX-License-Identifier: Apache-2.0

#include "cli/reference.h"

#include "base/json.h"
#include "cli/options.h"
#include "device/annotation_table.h"

namespace hami::cli {
namespace {

base::json::array Commands() {
  base::json::array all;
  for (const CommandName& one : CommandNames()) {
    all.push_back(base::json::object{{"name", one.name}, {"summary", one.summary}});
  }
  return all;
}

base::json::array Annotations() {
  base::json::array all;
  for (const device::KeyRule& rule : device::AnnotationTable()) {
    const char* carrier = "pod";
    if (rule.carrier == device::Carrier::kNode) carrier = "node";
    if (rule.carrier == device::Carrier::kLease) carrier = "lease";
    all.push_back(base::json::object{
        {"key", rule.key}, {"author", device::NameOf(rule.author)}, {"on", carrier}, {"text", rule.text}});
  }
  return all;
}

base::json::array Variables() {
  base::json::array all;
  for (const VariableRow& row : VariableTable()) {
    all.push_back(base::json::object{{"name", row.name}, {"reader", row.reader}, {"text", row.text}});
  }
  return all;
}

base::json::array Events() {
  base::json::array all;
  for (const EventRow& row : EventTable()) {
    all.push_back(base::json::object{
        {"reason", row.reason}, {"type", row.type}, {"on", row.object}, {"author", row.author}, {"text", row.text}});
  }
  return all;
}

base::json::array Keys() {
  base::json::array all;
  for (const KeyRow& row : KeyTable()) {
    all.push_back(
        base::json::object{{"file", row.file}, {"section", row.section}, {"key", row.key}, {"text", row.text}});
  }
  return all;
}

}  // namespace

std::string ReferenceText() {
  return base::Pretty(base::json::object{{"commands", Commands()},
                                         {"annotations", Annotations()},
                                         {"variables", Variables()},
                                         {"events", Events()},
                                         {"keys", Keys()}});
}

}  // namespace hami::cli
