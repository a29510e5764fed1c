// SPDX-License-Identifier: Apache-2.0

#include "kube/identity.h"

namespace hami::kube {
namespace {

bool TakeText(base::JsonCursor& cursor, std::string_view& text) {
  bool plain = false;
  return cursor.TakeString(text, plain) && plain;
}

}  // namespace

bool FindIdentity(base::JsonCursor& cursor, Identity& identity) {
  std::string_view key;
  std::string_view other;
  if (!cursor.Take('{')) return false;
  while (cursor.TakeKey(key) && key != "metadata") {
    if (!cursor.TakeValue(other) || !cursor.Take(',')) return false;
  }
  if (key != "metadata" || !cursor.Take('{')) return false;
  do {
    if (!cursor.TakeKey(key)) return false;
    std::string_view* const field = key == "namespace"         ? &identity.ns
                                    : key == "name"            ? &identity.name
                                    : key == "uid"             ? &identity.uid
                                    : key == "resourceVersion" ? &identity.version
                                                               : nullptr;
    if (field == nullptr ? !cursor.TakeValue(other) : !TakeText(cursor, *field)) return false;
  } while (cursor.Take(','));
  return cursor.Take('}') && !identity.name.empty() && !identity.uid.empty() && !identity.version.empty();
}

}  // namespace hami::kube
