// The bytes of a collective log, as docs/collective-log.md describes them. For its writer, its reader and their tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collective_identity.h"

namespace tessera::log_format {

inline constexpr char kMagic[8] = {'T', 'S', 'R', 'C', 'A', 'L', 'L', 'S'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMaxCommunicators = 64;

// The first page. What stands before `check` never changes; what follows is live.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint32_t communicator_bytes;
  std::uint32_t record_bytes;
  std::uint32_t max_communicators;
  std::uint32_t reserved0;
  std::uint64_t capacity;
  std::uint64_t run_id;
  std::int32_t world_rank, world_size, logical_rank;
  std::int32_t dp, pp, tp;
  std::int32_t mesh_dp, mesh_pp, mesh_tp;
  std::int32_t mesh_shard_size;  // 0: no hybrid groups
  char host[64];
  std::int64_t pid;
  std::uint64_t process_start;
  std::uint64_t pid_domain;
  std::int64_t unix_ns, monotonic_ns;
  std::uint64_t reserved2[7];
  std::uint64_t check;  // hash_bytes over all bytes before it

  std::uint32_t state;
  std::int32_t exit_code;
  std::uint32_t num_communicators;  // raised when the entry is complete
  std::uint32_t reserved3;
  std::int64_t heartbeat_ns;
  std::int64_t step;
  std::int32_t culprit;  // world rank + 1; 0: not told
  std::uint32_t reserved4[7];
  std::uint64_t num_added;  // alone in its cache line: all streams count here
  std::uint64_t reserved5[7];
  char message[512];
  char unused[3200];
};
static_assert(offsetof(Header, capacity) == 32);
static_assert(offsetof(Header, host) == 88);
static_assert(offsetof(Header, check) == 248);
static_assert(offsetof(Header, state) == 256);
static_assert(offsetof(Header, culprit) == 288);
static_assert(offsetof(Header, num_added) == 320);
static_assert(offsetof(Header, message) == 384);
static_assert(sizeof(Header) == 4096);

// kMaxCommunicators of these follow the header. What stands before `check` is written once.
struct Communicator {
  char group[32];
  char channel[16];
  std::uint64_t group_hash;
  std::int32_t size, position;
  std::uint64_t check;  // hash_bytes over all bytes before it
  std::uint64_t num_enqueued, num_started, num_finished, chain;
  std::uint64_t reserved[3];
};
static_assert(offsetof(Communicator, check) == 64);
static_assert(offsetof(Communicator, num_enqueued) == 72);
static_assert(sizeof(Communicator) == 128);

// `capacity` of these follow the communicators; call n lies in slot n mod capacity. The stamps come one by one after
// the commit; all else is covered by `check`, because a reader may copy a slot in the very moment it is written again.
struct Record {
  std::uint64_t commit;  // n + 1; 0: never used; kBusy: being written
  std::uint64_t check;   // hash_bytes from `communicator` up to and with enqueued_ns, seeded with n + 1
  std::uint32_t communicator;
  std::uint32_t reserved0;
  CollectiveIdentity identity;
  std::uint64_t fingerprint, chain;
  std::int64_t enqueued_ns;
  std::int64_t started_ns, finished_ns, waited_ns;
  std::uint64_t reserved1[3];
};
inline constexpr std::uint64_t kBusy = ~std::uint64_t{0};
inline constexpr std::size_t kCheckedBegin = offsetof(Record, communicator);
inline constexpr std::size_t kCheckedBytes = offsetof(Record, started_ns) - kCheckedBegin;
static_assert(offsetof(Record, identity) == 24);
static_assert(offsetof(Record, fingerprint) == 120);
static_assert(offsetof(Record, started_ns) == 144);
static_assert(sizeof(Record) == 192);

inline constexpr std::size_t kRecordsBegin = sizeof(Header) + kMaxCommunicators * sizeof(Communicator);
constexpr std::uint64_t file_bytes(std::uint64_t capacity) {
  return kRecordsBegin + capacity * sizeof(Record);
}

}  // namespace tessera::log_format
