#include "tools/bench_checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tools/figures.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTensors = 64;
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;

// A folder that goes with the object.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& parent) : path_(parent + "/tessera-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr)
      throw DeviceError(fmt::format("bench checkpoint: {}: {}", parent, std::strerror(errno)));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class PlainFile {
 public:
  PlainFile(const std::string& path, int flags)
      : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    check(descriptor_ >= 0);
  }
  ~PlainFile() { ::close(descriptor_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  void write_and_sync(const char* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t written = ::write(descriptor_, data + done, std::min(kChunkBytes, bytes - done));
      check(written > 0);
      done += static_cast<std::size_t>(written);
    }
    check(::fsync(descriptor_) == 0);
  }
  void read(char* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = ::read(descriptor_, data + done, std::min(kChunkBytes, bytes - done));
      check(got > 0);
      done += static_cast<std::size_t>(got);
    }
  }
  void drop_from_cache() { check(::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED) == 0); }

 private:
  void check(bool good) const {
    if (!good) throw DeviceError(fmt::format("bench checkpoint: {}: {}", path_, std::strerror(errno)));
  }
  std::string path_;
  int descriptor_;
};

class Timed {
 public:
  template <typename Work>
  void run(Work work) {
    const double start = monotonic_seconds();
    work();
    seconds_ = std::min(seconds_, monotonic_seconds() - start);
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

class CheckpointBench {
 public:
  explicit CheckpointBench(const BenchCheckpointOptions& options)
      : options_(options),
        folder_(options.path),
        state_(allocate(std::size_t(options.mib) << 20U)),
        loaded_(allocate(state_.size_bytes())),
        writer_(*files_, solo_, {.directory = folder_.path() + "/checkpoints"}, allocate(staging_bytes(slices()))) {
    std::iota(state_.span<float>().begin(), state_.span<float>().end(), 0.0F);
    std::ranges::fill(loaded_.span<float>(), 0.0F);
  }

  int run() {
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      copy_.run([&] { copy_state(); });
      // Disks that are shared give more to whoever comes first.
      const bool save_first = repeat % 2 == 1;
      if (save_first) save(repeat + 1);
      plain_write_.run([&] { plain().write_and_sync(state_.as<char>(), bytes()); });
      if (!save_first) save(repeat + 1);
      load();
      require(std::memcmp(loaded_.data(), state_.data(), bytes()) == 0, "a checkpoint loads what was saved");
      fs::remove(plain_path());
      files_->remove(saved_.folder);
    }
    report();
    return 0;
  }

 private:
  // As a run's state lies: aligned, and every page touched.
  Buffer allocate(std::size_t bytes) {
    return device_.allocator().allocate(bytes, MemoryCategory::kWorkspace, stream_.view());
  }
  std::size_t bytes() const { return state_.size_bytes(); }
  std::string plain_path() const { return folder_.path() + "/plain"; }
  PlainFile plain() const { return {plain_path(), O_RDWR | O_CREAT}; }

  std::vector<SourceSlice> slices() const {
    std::vector<SourceSlice> slices;
    const std::size_t count = bytes() / sizeof(float) / kTensors;
    for (std::size_t i = 0; i < kTensors; ++i)
      slices.push_back({.name = fmt::format("tensor.{:02}", i),
                        .shape = {static_cast<std::int64_t>(count)},
                        .count = static_cast<std::int64_t>(count),
                        .data = state_.as<float>() + i * count});
    return slices;
  }

  // Tensor by tensor, as it lies.
  void copy_state() {
    for (const SourceSlice& slice : slices())
      std::memcpy(loaded_.as<float>() + (slice.data - state_.as<float>()), slice.data,
                  static_cast<std::size_t>(slice.count) * sizeof(float));
  }

  void save(std::int64_t step) {
    SaveRequest request{.step = step, .slices = slices()};
    save_.run([&] {
      stall_.run([&] { writer_.begin(std::move(request)); });
      saved_ = writer_.wait();
    });
  }

  void load() {
    std::vector<TargetSlice> targets;
    std::size_t next = 0;
    for (const SourceSlice& slice : slices()) {
      targets.push_back({.name = slice.name, .count = slice.count, .data = loaded_.as<float>() + next});
      next += static_cast<std::size_t>(slice.count);
    }
    const auto load_once = [&] { CheckpointReader::open(*files_, saved_.folder).load(solo_, targets); };
    const auto read_once = [&] { plain().read(loaded_.as<char>(), bytes()); };
    plain().drop_from_cache();
    plain_read_.run(read_once);
    PlainFile(saved_.folder + "/shard-00000-of-00001.safetensors", O_RDONLY).drop_from_cache();
    load_.run(load_once);
    plain_cached_read_.run(read_once);
    cached_load_.run(load_once);
  }

  void report() const {
    const auto rate = [&](const Timed& timed) { return static_cast<double>(bytes()) / timed.seconds() / 1e9; };
    const std::vector<Figure> figures{
        {"save", rate(save_), "GB/s", "write and fsync", rate(plain_write_)},
        {"stall", stall_.seconds() * 1e3, "ms", "memcpy", copy_.seconds() * 1e3},
        {"load", rate(load_), "GB/s", "read", rate(plain_read_)},
        {"load, cached", rate(cached_load_), "GB/s", "read, cached", rate(plain_cached_read_)}};
    const std::string header =
        fmt::format("{} MiB in {} tensors, one rank; the best of {} runs\n", options_.mib, kTensors, options_.repeats);
    std::fputs((options_.json ? figures_json(figures) : header + figures_text(figures)).c_str(), stdout);
  }

  BenchCheckpointOptions options_;
  ScratchFolder folder_;
  CpuDevice device_;
  Stream stream_ = device_.create_stream("bench", StreamMode::kCompute);
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  SoloExchange solo_;
  Buffer state_, loaded_;
  CheckpointWriter writer_;
  SavedCheckpoint saved_;
  Timed copy_, plain_write_, save_, stall_, plain_read_, load_, plain_cached_read_, cached_load_;
};

}  // namespace

int run_bench_checkpoint(const BenchCheckpointOptions& options) {
  return CheckpointBench(options).run();
}

}  // namespace tessera
