// An AtomicFile whose bytes are compressed (RFC 1952).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/train/atomic_file.h"

struct z_stream_s;

namespace tessera {

class GzipFile {
 public:
  GzipFile(std::string path, FileOf owner);
  ~GzipFile();
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  void append(std::string_view bytes);
  void commit();

 private:
  void deflate_all(std::string_view bytes, int flush);

  AtomicFile file_;
  std::unique_ptr<z_stream_s> stream_;
};

}  // namespace tessera
