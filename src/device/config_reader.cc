// SPDX-License-Identifier: Apache-2.0

#include "device/config_reader.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "base/strings.h"

namespace hami::device {
namespace {

constexpr const char* kText = "must be a text";
constexpr const char* kFlag = "must be true or false";
constexpr const char* kWholeNumber = "must be a whole number";

// From 1, as editors count.
int LineOf(const YAML::Mark& mark) { return mark.is_null() ? 1 : mark.line + 1; }

std::string Place(const std::string& file, const YAML::Mark& mark) {
  return base::Concat({file, ":", std::to_string(LineOf(mark)), ": "});
}

// Where the documents of a text hold something, and where they hold nothing.
class Contents : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override { something_ = nothing_ = YAML::Mark::null_mark(); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { nothing_ = mark; }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { Note(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    Note(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    Note(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Note(mark);
  }
  void OnMapEnd() override {}

  // Of the document seen last; null marks where there is none.
  const YAML::Mark& something() const { return something_; }
  const YAML::Mark& nothing() const { return nothing_; }

 private:
  void Note(const YAML::Mark& mark) {
    if (something_.is_null()) something_ = mark;
  }
  YAML::Mark something_;
  YAML::Mark nothing_;
};

// The library sees one empty document after the other, for ever, before a character with which none can begin.
base::Status ExpectOneDocument(const std::string& text, const std::string& file) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Contents contents;
  int nothing_at = -1;
  for (bool first = true; parser.HandleNextDocument(contents); first = false) {
    if (!first && !contents.something().is_null()) {
      return base::Fail(Place(file, contents.something()) + "a second document, which nobody would read");
    }
    if (!first && !contents.nothing().is_null() && contents.nothing().pos == nothing_at) {
      return base::Fail(Place(file, contents.nothing()) + "not YAML from here on");
    }
    const bool empty = contents.something().is_null() && !contents.nothing().is_null();
    nothing_at = empty ? contents.nothing().pos : -1;
  }
  return {};
}

}  // namespace

ConfigReader::ConfigReader(const YAML::Node& node, std::string file, std::string path)
    : node_(node), file_(std::move(file)), path_(std::move(path)) {
  // `section:` with nothing behind it is an empty section.
  if (!node_.IsNull() && !node_.IsMap()) FailAt(node_, path_, "must be a mapping");
}

std::string ConfigReader::Path(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

base::Error ConfigReader::ErrorAt(const YAML::Node& node, const std::string& path, const std::string& why) const {
  return {base::Concat({Place(file_, node.Mark()), base::Printable(path), path.empty() ? "" : ": ", why}), {}};
}

void ConfigReader::FailAt(const YAML::Node& node, const std::string& path, const std::string& why) {
  if (!error_) error_ = ErrorAt(node, path, why);
}

void ConfigReader::Fail(const char* key, const std::string& why) {
  if (node_.IsMap() && node_[key].IsDefined()) return FailAt(node_[key], Path(key), why);
  if (!missing_) missing_ = ErrorAt(node_, Path(key), why);
}

int ConfigReader::Line(const char* key) const {
  return LineOf(node_.IsMap() && node_[key].IsDefined() ? node_[key].Mark() : node_.Mark());
}

bool ConfigReader::Has(const char* key) const {
  return node_.IsMap() && node_[key].IsDefined() && !node_[key].IsNull();
}

std::optional<YAML::Node> ConfigReader::Take(const char* key) {
  known_.emplace_back(key);
  if (!Has(key)) return std::nullopt;
  return node_[key];
}

template <typename T>
void ConfigReader::Scalar(const char* key, T& out, const char* wanted) {
  const std::optional<YAML::Node> value = Take(key);
  if (!value) return;
  T read{};
  if (!value->IsScalar() || !YAML::convert<T>::decode(*value, read)) return FailAt(*value, Path(key), wanted);
  out = std::move(read);
}

void ConfigReader::Text(const char* key, std::string& out) { Scalar(key, out, kText); }
void ConfigReader::Bool(const char* key, bool& out) { Scalar(key, out, kFlag); }
void ConfigReader::Integer(const char* key, std::int64_t& out) { Scalar(key, out, kWholeNumber); }
void ConfigReader::Real(const char* key, double& out) { Scalar(key, out, "must be a number"); }

void ConfigReader::Texts(const char* key, std::vector<std::string>& out) {
  const std::optional<YAML::Node> list = Take(key);
  if (!list) return;
  if (!list->IsSequence()) return FailAt(*list, Path(key), "must be a list");
  for (const YAML::Node& item : *list) {
    if (!item.IsScalar()) return FailAt(item, Path(key), "must be a list of texts");
    out.push_back(item.Scalar());
  }
}

void ConfigReader::Keep(const char* key, GoType type, std::string* out) {
  const std::optional<YAML::Node> value = Take(key);
  if (!value) return;
  if (type != GoType::kAny && (!value->IsScalar() || !GoTakes(value->Tag(), value->Scalar(), type))) {
    const char* const other = type == GoType::kBool ? kFlag : kWholeNumber;
    return FailAt(*value, Path(key), type == GoType::kText ? kText : other);
  }
  if (value->IsScalar() && out != nullptr) *out = value->Scalar();
}

void ConfigReader::Absorb(ConfigReader& inner) {
  if (base::Status status = inner.Finish(); !status && !error_) error_ = std::move(status).error();
}

void ConfigReader::ReadList(const YAML::Node& list, const std::string& path,
                            const std::function<void(ConfigReader&)>& read) {
  if (!list.IsSequence()) return FailAt(list, path, "must be a list");
  std::size_t index = 0;
  for (const YAML::Node& item : list) {
    ConfigReader inner(item, file_, path + "[" + std::to_string(index++) + "]");
    read(inner);
    Absorb(inner);
  }
}

void ConfigReader::Each(const char* key, const std::function<void(ConfigReader&)>& read) {
  if (const std::optional<YAML::Node> list = Take(key)) ReadList(*list, Path(key), read);
}

void ConfigReader::EachInner(const char* key, const std::function<void(ConfigReader&)>& read) {
  const std::optional<YAML::Node> lists = Take(key);
  if (!lists) return;
  if (!lists->IsSequence()) return FailAt(*lists, Path(key), "must be a list");
  for (const YAML::Node& list : *lists) ReadList(list, Path(key), read);
}

void ConfigReader::Section(const char* key, const std::function<void(ConfigReader&)>& read) {
  const std::optional<YAML::Node> section = Take(key);
  if (!section) return;
  ConfigReader inner(*section, file_, Path(key));
  read(inner);
  Absorb(inner);
}

std::optional<base::Error> ConfigReader::TakeError() {
  const base::Status finished = Finish();
  judged_ = true;
  missing_.reset();
  return std::exchange(error_, std::nullopt);
}

base::Status ConfigReader::Finish() {
  std::set<std::string> seen;
  if (node_.IsMap() && !judged_) {
    for (const auto& pair : node_) {
      if (!pair.first.IsScalar()) {
        FailAt(pair.first, path_, "a key must be a text");
        continue;
      }
      const std::string& key = pair.first.Scalar();
      if (!seen.insert(key).second) FailAt(pair.first, Path(key), "is given twice");
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::optional<std::string> meant = base::Nearest(key, known_);
      // HAMi's documents write keys with their section: nvidia.memoryFactor.
      if (!meant) meant = base::Nearest(key.substr(key.rfind('.') + 1), known_);
      FailAt(pair.first, Path(key), meant ? "unknown key; did you mean " + *meant + "?" : "unknown key");
    }
  }
  if (!error_) error_ = missing_;
  if (error_) return tl::unexpected<base::Error>(*error_);
  return {};
}

base::Status ReadDocument(std::string_view text, const std::string& file,
                          const std::function<base::Status(const YAML::Node&)>& read) {
  try {
    const std::string whole(text);
    HAMI_TRY(ExpectOneDocument(whole, file));
    return read(YAML::Load(whole));
  } catch (const YAML::Exception& error) {
    return base::Fail(Place(file, error.mark) + error.msg);
  }
}

}  // namespace hami::device
