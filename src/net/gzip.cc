// SPDX-License-Identifier: Apache-2.0

#include "net/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/strings.h"

namespace hami::net {
namespace {

// Smaller bodies fit into a packet as they are.
constexpr std::size_t kLeastBytes = 1400;
// Metrics repeat themselves: higher levels take several times the CPU for some percent.
constexpr int kLevel = 1;
constexpr int kGzipWindow = 15 + 16;  // zlib: 16 more says gzip
constexpr int kMemory = 8;
constexpr std::size_t kPieceBytes = 64U << 10U;

// Compresses what is written, and hands it on in pieces.
class GzipWriter : public BodyWriter {
 public:
  explicit GzipWriter(BodyWriter& out) : out_(out) {
    good_ = ::deflateInit2(&stream_, kLevel, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) == Z_OK;
    begun_ = good_;
  }
  ~GzipWriter() override {
    if (begun_) ::deflateEnd(&stream_);
  }
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  bool Write(std::string_view piece) override { return Deflate(piece, Z_NO_FLUSH); }
  bool Alive() override { return good_ && out_.Alive(); }
  void Cut() override {
    good_ = false;
    out_.Cut();
  }
  // The end of the body. Without it the client knows that something is missing.
  void Finish() {
    if (!Deflate({}, Z_FINISH)) out_.Cut();
  }

 private:
  bool Deflate(std::string_view piece, int flush) {
    while (good_) {
      // zlib counts in 32 bits, and takes what it reads for writable.
      const std::string_view now = piece.substr(0, kPieceBytes);
      piece.remove_prefix(now.size());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(now.data()));
      stream_.avail_in = static_cast<uInt>(now.size());
      if (!Drain(piece.empty() ? flush : Z_NO_FLUSH)) return false;
      if (piece.empty()) return true;
    }
    return false;
  }

  bool Drain(int flush) {
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      // Z_BUF_ERROR: there was nothing to do.
      const int done = ::deflate(&stream_, flush);
      good_ = done == Z_OK || done == Z_STREAM_END || done == Z_BUF_ERROR;
      const std::size_t ready = buffer_.size() - stream_.avail_out;
      if (good_ && ready > 0) good_ = out_.Write({buffer_.data(), ready});
    } while (good_ && stream_.avail_out == 0);
    return good_;
  }

  BodyWriter& out_;
  z_stream stream_{};
  std::array<char, kPieceBytes> buffer_{};
  bool good_ = false;
  bool begun_ = false;
};

// The quality of one element behind its name: `;q=0.5`. What cannot be read is 1, as if it were not there.
bool IsRefused(std::string_view parameters) {
  for (const std::string& part : base::Split(parameters, ';')) {
    const std::string word = base::ToLower(base::Trim(part));
    if (!word.starts_with("q=")) continue;
    return word.size() > 2 && word.find_first_not_of("0.", 2) == std::string::npos;
  }
  return false;
}

}  // namespace

bool AcceptsGzip(std::string_view accept_encoding) {
  bool any = false;
  for (const std::string& element : base::Split(accept_encoding, ',')) {
    const std::size_t end = std::min(element.find(';'), element.size());
    const std::string name = base::ToLower(base::Trim(std::string_view(element).substr(0, end)));
    const bool refused = IsRefused(std::string_view(element).substr(end));
    if (name == "gzip" || name == "x-gzip") return !refused;
    if (name == "*") any = !refused;
  }
  return any;
}

Response Compressed(const Request& request, Response response) {
  response.headers.emplace_back("Vary", "Accept-Encoding");
  const std::string* accepted = request.headers.Find("Accept-Encoding");
  const bool small = !response.stream && response.body.size() < kLeastBytes;
  if (accepted == nullptr || !AcceptsGzip(*accepted) || small || request.method == "HEAD") return response;
  response.headers.emplace_back("Content-Encoding", "gzip");
  auto plain = std::move(response.stream);
  if (!plain) plain = [body = std::move(response.body)](BodyWriter& out) { out.Write(body); };
  response.body.clear();
  response.stream = [plain = std::move(plain)](BodyWriter& out) {
    GzipWriter gzip(out);
    plain(gzip);
    gzip.Finish();
  };
  return response;
}

}  // namespace hami::net
