#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_log.h"
#include "parallel/collective_log_format.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

namespace format = log_format;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DataError(fmt::format("collective log {}: {}", path, what));
}

// Bounds that keep sums and differences of what a file says within 64 bits, and tables within reason.
constexpr std::int32_t kMaxWorldSize = 1 << 20;
constexpr std::int64_t kMaxTime = std::int64_t{1} << 61U;
constexpr int kMaxLooks = 3;  // at a record that a writer may be changing
bool is_time(std::int64_t ns) {
  return ns >= 0 && ns < kMaxTime;
}
// A stamp that is not after `begin` was never written.
std::int64_t stamp_after(std::int64_t begin, std::int64_t stamp) {
  return is_time(stamp) && stamp >= begin ? stamp : 0;
}

class File {
 public:
  explicit File(const std::string& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail(path, std::strerror(errno));
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      close(descriptor_);
      fail(path, "is no regular file");
    }
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Fewer bytes where the file ends. Read, not mapped: a mapped file that shrinks ends its reader.
  std::size_t read(void* to, std::size_t bytes, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t got =
          pread(descriptor_, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(path_, std::strerror(errno));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

 private:
  std::string path_;
  int descriptor_;
};

// What is printed later must not command a terminal or break a line.
void make_printable(char* text, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (const auto letter = static_cast<unsigned char>(text[i]); letter != 0 && (letter < 0x20 || letter == 0x7f))
      text[i] = '?';
  }
}

template <std::size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  std::string text(field, static_cast<std::size_t>(std::find(field, field + kBytes, '\0') - field));
  make_printable(text.data(), text.size());
  return text;
}

void check_header(const std::string& path, const format::Header& header, std::size_t bytes) {
  if (bytes == 0) fail(path, "is empty");
  if (bytes < sizeof(header.magic) || std::memcmp(header.magic, format::kMagic, sizeof(header.magic)) != 0)
    fail(path, "is no collective log (its first bytes are others)");
  if (bytes < sizeof(header)) fail(path, fmt::format("ends after {} of the header's {} bytes", bytes, sizeof(header)));
  if (header.version != format::kVersion)
    fail(path, fmt::format("has version {}; this program reads version {}", header.version, format::kVersion));
  if (header.check != hash_bytes(&header, offsetof(format::Header, check))) fail(path, "its header is damaged");
  const bool sizes = header.header_bytes == sizeof(format::Header) && header.record_bytes == sizeof(format::Record) &&
                     header.communicator_bytes == sizeof(format::Communicator) &&
                     header.max_communicators == format::kMaxCommunicators;
  const bool numbers = header.capacity > 0 && header.capacity <= kMaxLogCapacity && header.world_size > 0 &&
                       header.world_size <= kMaxWorldSize && header.world_rank >= 0 &&
                       header.world_rank < header.world_size && is_time(header.unix_ns) && is_time(header.monotonic_ns);
  if (!sizes || !numbers) fail(path, "its header contradicts itself");
}

LogOwner owner_of(const format::Header& header) {
  return {
      .run_id = header.run_id,
      .world_rank = header.world_rank,
      .world_size = header.world_size,
      .logical_rank = header.logical_rank,
      .at = {.dp = header.dp, .pp = header.pp, .tp = header.tp},
      .mesh = {.dp = header.mesh_dp, .pp = header.mesh_pp, .tp = header.mesh_tp, .shard_size = header.mesh_shard_size},
      .host = text_of(header.host),
      .pid = header.pid,
      .process_start = header.process_start,
      .pid_domain = header.pid_domain,
      .unix_ns = header.unix_ns,
      .monotonic_ns = header.monotonic_ns};
}

// Damaged entries keep their place, since records name them by index, with size 0.
std::vector<LoggedCommunicator> communicators_of(const std::vector<format::Communicator>& table) {
  std::vector<LoggedCommunicator> result(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const format::Communicator& from = table[i];
    LoggedCommunicator& to = result[i];
    to.group = "?";
    to.size = 0;
    if (from.check != hash_bytes(&from, offsetof(format::Communicator, check))) continue;
    if (from.size < 1 || from.size > kMaxWorldSize || from.position < 0 || from.position >= from.size) continue;
    to.group = text_of(from.group);
    to.channel = text_of(from.channel);
    to.size = from.size;
    to.position = from.position;
    to.group_hash = from.group_hash;
    to.num_enqueued = from.num_enqueued;
    to.num_started = from.num_started;
    to.num_finished = from.num_finished;
    to.chain = from.chain;
  }
  return result;
}

bool makes_sense(const format::Record& record, const std::vector<LoggedCommunicator>& communicators) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  return record.check == hash_bytes(bytes + format::kCheckedBegin, format::kCheckedBytes, record.commit) &&
         record.communicator < communicators.size() && communicators[record.communicator].size > 0 &&
         record.identity.op <= CollectiveOp::kBarrier && record.identity.reduce <= ReduceOp::kMax &&
         record.identity.dtype <= DType::kUInt64 && is_time(record.enqueued_ns);
}

// Whether a copied record is one to look at. Its stamps are not covered by the check, so a slot that was claimed again
// by the time the copy was complete does not count: the writer raises num_added before it clears them.
bool is_valid(const format::Record& record, std::uint64_t capacity, std::uint64_t num_added) {
  return record.commit != 0 && record.commit != format::kBusy && record.commit + capacity > num_added;
}

// The number that stood there after everything read so far was copied. A processor may do two reads in either order.
std::uint64_t read_num_added(const File& file, const format::Header& header) {
#if !defined(__SANITIZE_THREAD__)  // it knows no fences, and nothing of what the kernel copies
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
  std::uint64_t value = 0;
  return file.read(&value, sizeof(value), offsetof(format::Header, num_added)) == sizeof(value) ? value
                                                                                                : header.num_added;
}

LoggedCall call_of(const format::Record& record) {
  LoggedCall call{.index = record.commit - 1,
                  .communicator = static_cast<int>(record.communicator),
                  .identity = record.identity,
                  .fingerprint = record.fingerprint,
                  .chain = record.chain,
                  .enqueued_ns = record.enqueued_ns,
                  .started_ns = stamp_after(record.enqueued_ns, record.started_ns),
                  .finished_ns = stamp_after(record.enqueued_ns, record.finished_ns)};
  if (call.finished_ns != 0) call.waited_ns = std::clamp<std::int64_t>(record.waited_ns, 0, kMaxTime);
  make_printable(call.identity.what, sizeof(call.identity.what));
  make_printable(call.identity.phase, sizeof(call.identity.phase));
  return call;
}

}  // namespace

RankLog read_collective_log(const std::string& path, std::uint64_t max_calls) {
  const File file(path);
  format::Header header{};
  check_header(path, header, file.read(&header, sizeof(header), 0));
  RankLog log;
  log.path = path;
  log.owner = owner_of(header);
  log.capacity = header.capacity;
  // State before the records: what an ended rank wrote is all there.
  log.state = header.state <= static_cast<std::uint32_t>(LogState::kEndedError) ? static_cast<LogState>(header.state)
                                                                                : LogState::kRunning;
  log.exit_code = header.exit_code;
  log.message = text_of(header.message);
  if (header.culprit > 0 && header.culprit <= header.world_size) log.culprit = header.culprit - 1;
  log.heartbeat_ns = is_time(header.heartbeat_ns) ? header.heartbeat_ns : 0;
  log.step = header.step;

  std::vector<format::Communicator> table(std::min(header.num_communicators, format::kMaxCommunicators));
  table.resize(file.read(table.data(), table.size() * sizeof(format::Communicator), sizeof(format::Header)) /
               sizeof(format::Communicator));
  log.communicators = communicators_of(table);

  // The newest calls lie before slot num_added mod capacity, at most in two pieces.
  const std::uint64_t kept = std::min({max_calls, header.capacity, std::max<std::uint64_t>(header.num_added, 1)});
  const std::uint64_t end = header.num_added % header.capacity;
  const std::uint64_t first_piece = std::min(end, kept);
  std::vector<format::Record> records;
  const auto read_records = [&](format::Record* to, std::uint64_t slot, std::uint64_t count) {
    const std::uint64_t offset = format::kRecordsBegin + slot * sizeof(format::Record);
    return file.read(to, count * sizeof(format::Record), offset) / sizeof(format::Record);
  };
  const auto read_piece = [&](std::uint64_t slot, std::uint64_t count) {
    records.resize(count);
    records.resize(read_records(records.data(), slot, count));
    log.num_added = read_num_added(file, header);
    for (std::size_t i = 0; i < records.size(); ++i) {
      format::Record& record = records[i];
      // A copy made while the slot was written may have the new commit and old fields: looked at again, it is whole.
      for (int look = 0; is_valid(record, header.capacity, log.num_added) && !makes_sense(record, log.communicators);) {
        if (++look > kMaxLooks || read_records(&record, slot + i, 1) != 1) break;
        log.num_added = read_num_added(file, header);
      }
      if (!is_valid(record, header.capacity, log.num_added)) continue;
      if (makes_sense(record, log.communicators)) {
        log.calls.push_back(call_of(record));
      } else {
        ++log.num_damaged;
      }
    }
  };
  read_piece(end - first_piece, first_piece);
  read_piece(header.capacity - (kept - first_piece), kept - first_piece);
  std::sort(log.calls.begin(), log.calls.end(),
            [](const LoggedCall& a, const LoggedCall& b) { return a.index < b.index; });
  return log;
}

}  // namespace tessera
