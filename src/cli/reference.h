// SPDX-License-Identifier: Apache-2.0
//
// What the reference pages are made of (tools/reference.py), as JSON: the commands, and of all programs the environment
// variables, annotations, events and keys of configuration files, each with what it means. Flags and metrics stand
// where they are read and written, and are taken from there.

#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hami::cli {

struct VariableRow {
  std::string_view name;    // <i> stands for a number
  std::string_view reader;  // what reads it
  std::string_view text;
};

struct EventRow {
  std::string_view reason;
  std::string_view type;    // Normal or Warning
  std::string_view object;  // what it stands at: pod, node
  std::string_view author;
  std::string_view text;
};

struct KeyRow {
  std::string_view file;     // what kind of file
  std::string_view section;  // of the file; empty: its top
  std::string_view key;
  std::string_view text;
};

// A variable that only stands for a flag of hami-device-plugin is named by that flag's help, and not here.
std::span<const VariableRow> VariableTable();
std::span<const EventRow> EventTable();
std::span<const KeyRow> KeyTable();

// `hami --help=reference`.
std::string ReferenceText();

}  // namespace hami::cli
