#include "runtime/train/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr int kWindowBits = 15 + 16;  // the largest window, and a gzip header instead of zlib's
constexpr int kMemoryLevel = 8;       // zlib's default

}  // namespace

GzipFile::GzipFile(std::string path, FileOf owner) : file_(std::move(path), owner), stream_(new z_stream{}) {
  const int state =
      deflateInit2(stream_.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY);
  if (state != Z_OK) throw DeviceError("gzip: no memory for the compressor");
}

GzipFile::~GzipFile() {
  deflateEnd(stream_.get());
}

void GzipFile::append(std::string_view bytes) {
  constexpr std::size_t most = std::numeric_limits<uInt>::max();  // what zlib can count at a time
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), most)))
    deflate_all(bytes.substr(0, most), Z_NO_FLUSH);
}

void GzipFile::commit() {
  deflate_all({}, Z_FINISH);
  file_.commit();
}

void GzipFile::deflate_all(std::string_view bytes, int flush) {
  std::array<char, 1 << 16> out;  // NOLINT(cppcoreguidelines-pro-type-member-init): zlib fills it
  stream_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream_->avail_in = static_cast<uInt>(bytes.size());
  do {
    stream_->next_out = reinterpret_cast<Bytef*>(out.data());
    stream_->avail_out = out.size();
    require(deflate(stream_.get(), flush) != Z_STREAM_ERROR, "a compressor that was initialised compresses");
    file_.append({out.data(), out.size() - stream_->avail_out});
  } while (stream_->avail_out == 0);
}

}  // namespace tessera
