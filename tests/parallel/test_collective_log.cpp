#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "parallel/collective_log.h"
#include "parallel/collective_log_format.h"
#include "parallel/collective_verdict.h"
#include "parallel/process_state.h"
#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

LogOwner owner_of_rank(int rank, int world_size) {
  LogOwner owner = LogOwner::this_process();
  owner.run_id = 7;
  owner.world_rank = owner.logical_rank = owner.at.dp = rank;
  owner.world_size = owner.mesh.dp = world_size;
  return owner;
}

const LogCommunicator kGather{
    .group = "dp:0", .channel = "gather", .size = 2, .position = 1, .group_hash = 0x1234'5678'9abc'def0};

CollectiveIdentity identity_of(std::uint64_t sequence, CollectiveOp op = CollectiveOp::kAllGather) {
  CollectiveIdentity identity;
  identity.sequence = sequence;
  identity.num_elements = 1000 + sequence;
  identity.step = 3;
  identity.op = op;
  identity.dtype = DType::kFloat32;
  set_name(identity.what, sizeof(identity.what), "block.3");
  set_name(identity.phase, sizeof(identity.phase), "forward");
  return identity;
}

// Enqueues call `sequence` as a communicator would; chain keeps the history.
CollectiveLog::Handle add(CollectiveLog& log, int communicator, std::uint64_t sequence, std::uint64_t& chain) {
  const CollectiveIdentity identity = identity_of(sequence);
  const std::uint64_t fingerprint = fingerprint_of(kGather.group_hash, identity);
  chain = extend_chain(chain, fingerprint);
  return log.enqueue(communicator, identity, fingerprint, chain);
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.line();
  }
  return "no error";
}

class CollectiveLogFile : public ::testing::Test {
 protected:
  std::string path() const { return directory_ / "rank-00001.log"; }
  std::string bytes() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

  test::TemporaryDirectory directory_;
};

TEST_F(CollectiveLogFile, WhatIsWrittenIsRead) {
  const LogOwner owner = owner_of_rank(1, 2);
  const auto log = CollectiveLog::create(path(), owner, 8);
  log->add_communicator({.group = "world", .channel = "reduce", .size = 2, .position = 1, .group_hash = 5});
  const int dp = log->add_communicator(kGather);
  std::uint64_t chain = 0;
  const auto first = add(*log, dp, 0, chain);
  log->started(first);
  log->finished(first, 42);
  const auto second = add(*log, dp, 1, chain);
  log->started(second);
  add(*log, dp, 2, chain);
  log->set_step(3);
  log->beat();

  const RankLog read = read_collective_log(path());
  EXPECT_EQ(read.owner, owner);
  EXPECT_EQ(read.state, LogState::kRunning);
  EXPECT_EQ(read.step, 3);
  EXPECT_GE(read.heartbeat_ns, owner.unix_ns);
  EXPECT_EQ(read.num_added, 3U);
  EXPECT_EQ(read.num_damaged, 0U);
  ASSERT_EQ(read.communicators.size(), 2U);
  EXPECT_EQ(read.communicators[0].group, "world");
  EXPECT_EQ(read.communicators[1].channel, "gather");
  EXPECT_EQ(read.communicators[1].group_hash, kGather.group_hash);
  EXPECT_EQ(read.communicators[1].num_enqueued, 3U);
  EXPECT_EQ(read.communicators[1].num_started, 2U);
  EXPECT_EQ(read.communicators[1].num_finished, 1U);
  EXPECT_EQ(read.communicators[1].chain, chain);
  ASSERT_EQ(read.calls.size(), 3U);
  const LoggedCall& done = read.calls[0];
  const CollectiveIdentity expected = identity_of(0);
  EXPECT_EQ(std::memcmp(&done.identity, &expected, sizeof(expected)), 0);
  EXPECT_EQ(done.fingerprint, fingerprint_of(kGather.group_hash, expected));
  EXPECT_EQ(done.waited_ns, 42);
  EXPECT_LE(owner.monotonic_ns, done.enqueued_ns);
  EXPECT_LE(done.enqueued_ns, done.started_ns);
  EXPECT_LE(done.started_ns, done.finished_ns);
  EXPECT_GT(read.calls[1].started_ns, 0);
  EXPECT_EQ(read.calls[1].finished_ns, 0);
  EXPECT_EQ(read.calls[2].started_ns, 0);
  EXPECT_EQ(read.calls[2].chain, chain);
}

TEST_F(CollectiveLogFile, HowItEndedIsRead) {
  CollectiveLog::create(path(), owner_of_rank(1, 2), 8)->end(0);
  EXPECT_EQ(read_collective_log(path()).state, LogState::kEndedOk);
  CollectiveLog::create(path(), owner_of_rank(1, 2), 8)->end(6, std::string(600, 'm'));
  const RankLog failed = read_collective_log(path());
  EXPECT_EQ(failed.state, LogState::kEndedError);
  EXPECT_EQ(failed.exit_code, 6);
  EXPECT_EQ(failed.message, std::string(512, 'm'));
  EXPECT_EQ(failed.culprit, -1);
  for (const int culprit : {0, 1}) {
    CollectiveLog::create(path(), owner_of_rank(1, 2), 8)->end(3, "data", culprit);
    EXPECT_EQ(read_collective_log(path()).culprit, culprit);
  }
  CollectiveLog::create(path(), owner_of_rank(1, 2), 8)->end(3, "data", 2);  // of two ranks
  EXPECT_EQ(read_collective_log(path()).culprit, -1);
}

CollectiveLog* interrupted = nullptr;

// The second Ctrl-C: the process ends inside the handler, wherever its threads are.
TEST_F(CollectiveLogFile, ASignalHandlerMaySayHowTheProcessEnds) {
  static_assert(noexcept(interrupted->mark_ended(130)));
  const auto log = CollectiveLog::create(path(), owner_of_rank(0, 1), 8);
  const pid_t child = fork();
  if (child == 0) {
    interrupted = log.get();
    signal(SIGINT, [](int) {
      interrupted->mark_ended(130);
      _exit(130);
    });
    raise(SIGINT);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const RankLog read = read_collective_log(path());
  EXPECT_EQ(read.state, LogState::kEndedError);
  EXPECT_EQ(read.exit_code, 130);
  const Verdict verdict = judge({.logs = {read}, .liveness = {Liveness::kDead}, .now_ns = read.owner.unix_ns});
  EXPECT_EQ(verdict.outcome, Outcome::kOk);
  EXPECT_EQ(verdict.ranks[0].state, RankState::kEnded);
}

TEST_F(CollectiveLogFile, ASignalThatComesAfterTheEndChangesNothing) {
  const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  log->end(3, "data: id 9");
  log->mark_ended(130);
  EXPECT_EQ(read_collective_log(path()).exit_code, 3);
  EXPECT_EQ(read_collective_log(path()).message, "data: id 9");
}

TEST_F(CollectiveLogFile, TheRingKeepsTheNewestCalls) {
  const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  const int dp = log->add_communicator(kGather);
  std::uint64_t chain = 0;
  const auto oldest = add(*log, dp, 0, chain);
  for (std::uint64_t sequence = 1; sequence < 21; ++sequence) add(*log, dp, sequence, chain);
  // Its slot belongs to call 16 now: only the counters move.
  log->started(oldest);
  log->finished(oldest, 1);

  const RankLog read = read_collective_log(path());
  ASSERT_EQ(read.calls.size(), 8U);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(read.calls[i].index, 13 + i);
    EXPECT_EQ(read.calls[i].identity.sequence, 13 + i);
    EXPECT_EQ(read.calls[i].started_ns, 0);
    EXPECT_EQ(read.calls[i].finished_ns, 0);
  }
  EXPECT_EQ(read.communicators[0].num_enqueued, 21U);
  EXPECT_EQ(read.communicators[0].num_finished, 1U);

  const RankLog newest = read_collective_log(path(), 6);
  ASSERT_EQ(newest.calls.size(), 6U);
  EXPECT_EQ(newest.calls.front().index, 15U);
  EXPECT_EQ(newest.calls.back().index, 20U);
}

TEST_F(CollectiveLogFile, WritingBackChangesNothingThatIsRead) {
  const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  const int dp = log->add_communicator(kGather);
  std::uint64_t chain = 0;
  for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
    log->sync();
    log->finished(add(*log, dp, sequence, chain));
  }
  const std::string before = bytes();
  log->sync();
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(read_collective_log(path()).calls.size(), 8U);
}

TEST_F(CollectiveLogFile, SendAndRecvDoNotMoveTheGroupsCounters) {
  const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  const int pp = log->add_communicator(kGather);
  const auto sent = log->enqueue(pp, identity_of(4, CollectiveOp::kSend), 9, 0);
  log->started(sent);
  log->finished(sent);
  const RankLog read = read_collective_log(path());
  EXPECT_EQ(read.communicators[0].num_enqueued, 0U);
  EXPECT_EQ(read.communicators[0].num_finished, 0U);
  ASSERT_EQ(read.calls.size(), 1U);
  EXPECT_GT(read.calls[0].finished_ns, 0);
}

TEST_F(CollectiveLogFile, ThreadsAddRecordsAtOnceAndAReaderSeesNoneTorn) {
  constexpr int num_threads = 4;
  constexpr std::uint64_t num_calls = 3000;
  constexpr std::uint64_t capacity = 64;  // small: slots are written again while they are read
  const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), capacity);
  std::atomic<int> running{num_threads};
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    const int communicator = log->add_communicator(
        {.group = "dp:0", .channel = fmt::format("stream{}", t), .size = 2, .group_hash = kGather.group_hash});
    threads.emplace_back([&, communicator] {
      std::uint64_t chain = 0;
      for (std::uint64_t sequence = 0; sequence < num_calls; ++sequence) {
        const auto handle = add(*log, communicator, sequence, chain);
        log->started(handle);
        log->finished(handle, 1);
        log->beat();
        if (sequence % 64 == 0) log->sync();
      }
      --running;
    });
  }
  const auto check = [&](const RankLog& read) {
    EXPECT_EQ(read.num_damaged, 0U);
    for (const LoggedCall& call : read.calls) {
      const CollectiveIdentity expected = identity_of(call.identity.sequence);
      ASSERT_EQ(std::memcmp(&call.identity, &expected, sizeof(expected)), 0);
      ASSERT_EQ(call.fingerprint, fingerprint_of(kGather.group_hash, expected));
      // Its own stamps: after its enqueue, and before its stream's next call, which waits for nothing but this one.
      const std::int64_t begin = call.started_ns != 0 ? call.started_ns : call.enqueued_ns;
      ASSERT_LE(call.enqueued_ns, begin);
      const std::int64_t end = call.finished_ns != 0 ? call.finished_ns : begin;
      ASSERT_LE(begin, end);
      for (const LoggedCall& next : read.calls) {
        const bool follows = next.communicator == call.communicator && next.index > call.index;
        ASSERT_TRUE(!follows || end <= next.enqueued_ns);
      }
    }
  };
  while (running > 0) check(read_collective_log(path()));
  for (std::thread& thread : threads) thread.join();

  const RankLog read = read_collective_log(path());
  check(read);
  EXPECT_EQ(read.num_added, num_threads * num_calls);
  EXPECT_LE(read.calls.size(), capacity);
  std::uint64_t chain = 0;
  for (std::uint64_t sequence = 0; sequence < num_calls; ++sequence)
    chain = extend_chain(chain, fingerprint_of(kGather.group_hash, identity_of(sequence)));
  for (const LoggedCommunicator& communicator : read.communicators) {
    EXPECT_EQ(communicator.num_enqueued, num_calls);
    EXPECT_EQ(communicator.num_finished, num_calls);
    EXPECT_EQ(communicator.chain, chain);
  }
}

TEST_F(CollectiveLogFile, WhatAKilledProcessWroteIsThere) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2));
    const int dp = log->add_communicator(kGather);
    std::uint64_t chain = 0;
    for (std::uint64_t sequence = 0; sequence < 1000; ++sequence) log->finished(add(*log, dp, sequence, chain));
    add(*log, dp, 1000, chain);
    if (::write(ready[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char letter = 0;
  ASSERT_EQ(::read(ready[0], &letter, 1), 1);
  EXPECT_EQ(process_state(child)->start_time, read_collective_log(path()).owner.process_start);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);

  const RankLog read = read_collective_log(path());
  EXPECT_EQ(read.state, LogState::kRunning);
  EXPECT_EQ(read.owner.pid, child);
  EXPECT_FALSE(process_state(child).has_value());
  ASSERT_EQ(read.calls.size(), 1001U);
  EXPECT_GT(read.calls[999].finished_ns, 0);
  EXPECT_EQ(read.calls[1000].finished_ns, 0);
  EXPECT_EQ(read.communicators[0].num_enqueued, 1001U);
}

TEST_F(CollectiveLogFile, ANewLogReplacesTheOldOneWhoseWriterGoesOn) {
  const auto old = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  const int dp = old->add_communicator(kGather);
  const auto fresh = CollectiveLog::create(path(), owner_of_rank(1, 2), 16);
  std::uint64_t chain = 0;
  add(*old, dp, 0, chain);
  const RankLog read = read_collective_log(path());
  EXPECT_EQ(read.capacity, 16U);
  EXPECT_TRUE(read.calls.empty());
}

TEST_F(CollectiveLogFile, ADirectoryThatVanishesBeforeIsAnErrorAndAfterwardsNone) {
  const std::string gone = directory_ / "gone";
  EXPECT_EQ(message_of([&] { CollectiveLog::create(gone + "/rank-00001.log", owner_of_rank(1, 2), 8); }),
            fmt::format("collective log {}/rank-00001.log: cannot be created: No such file or directory", gone));
  fs::create_directory(gone);
  const auto log = CollectiveLog::create(gone + "/rank-00001.log", owner_of_rank(1, 2), 8);
  fs::remove_all(gone);
  const int dp = log->add_communicator(kGather);
  std::uint64_t chain = 0;
  log->finished(add(*log, dp, 0, chain));
  log->end(0);
}

TEST_F(CollectiveLogFile, TooManyCommunicatorsAreRefused) {
  const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(log->add_communicator(kGather), i);
  EXPECT_THROW(log->add_communicator(kGather), InternalError);
  EXPECT_THROW(log->enqueue(64, identity_of(0), 1, 1), InternalError);
  EXPECT_THROW(CollectiveLog::create(path(), owner_of_rank(1, 2), 0), InternalError);
}

// In a child, since the limit is the process's.
TEST_F(CollectiveLogFile, AFullDiskIsAnErrorAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{10'000, 10'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(77);
    const std::string message = message_of([&] { CollectiveLog::create(path(), owner_of_rank(1, 2), 8); });
    // 4,096 + 64 · 128 + 8 · 192 bytes.
    const bool right = message.find(path() + ": 13824 bytes needed, ") != std::string::npos &&
                       message.find(" free: File too large") != std::string::npos;
    _exit(right && fs::is_empty(directory_.path()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "RLIMIT_FSIZE cannot be set";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CollectiveLogFile, WhatIsNoLogIsOneClearError) {
  const auto error = [&] { return message_of([&] { read_collective_log(path()); }); };
  const std::string prefix = "collective log " + path() + ": ";
  EXPECT_EQ(error(), prefix + "No such file or directory");
  write("");
  EXPECT_EQ(error(), prefix + "is empty");
  write("step 3 seq 17 group dp:0 stream gather\n");
  EXPECT_EQ(error(), prefix + "is no collective log (its first bytes are others)");
  CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
  const std::string whole = bytes();
  write(whole.substr(0, 300));
  EXPECT_EQ(error(), prefix + "ends after 300 of the header's 4096 bytes");
  std::string other = whole;
  other[8] = 9;
  write(other);
  EXPECT_EQ(error(), prefix + "has version 9; this program reads version 1");
  other = whole;
  other[40] = '\x55';
  write(other);
  EXPECT_EQ(error(), prefix + "its header is damaged");
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_EQ(error(), prefix + "is no regular file");
}

TEST_F(CollectiveLogFile, AFileCutShortKeepsWhatItHolds) {
  {
    const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
    const int dp = log->add_communicator(kGather);
    std::uint64_t chain = 0;
    for (std::uint64_t sequence = 0; sequence < 8; ++sequence) add(*log, dp, sequence, chain);
  }
  const std::string whole = bytes();
  const auto calls_of = [&](std::size_t size) {
    write(whole.substr(0, size));
    return read_collective_log(path()).calls.size();
  };
  constexpr std::size_t records_begin = log_format::kRecordsBegin;
  EXPECT_EQ(calls_of(4096), 0U);
  EXPECT_EQ(calls_of(records_begin), 0U);
  EXPECT_EQ(calls_of(records_begin + 191), 0U);
  EXPECT_EQ(calls_of(records_begin + 192), 1U);
  EXPECT_EQ(calls_of(records_begin + 8 * 192), 8U);
}

TEST_F(CollectiveLogFile, ARecordThatIsNotWholeIsLeftOut) {
  {
    const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
    const int dp = log->add_communicator(kGather);
    std::uint64_t chain = 0;
    for (std::uint64_t sequence = 0; sequence < 4; ++sequence) add(*log, dp, sequence, chain);
  }
  std::string damaged = bytes();
  const std::uint64_t busy = log_format::kBusy;
  std::memcpy(damaged.data() + log_format::kRecordsBegin + 1 * 192, &busy, sizeof(busy));
  damaged[log_format::kRecordsBegin + 2 * 192 + offsetof(log_format::Record, fingerprint)] ^= 1;
  write(damaged);
  const RankLog read = read_collective_log(path());
  ASSERT_EQ(read.calls.size(), 2U);
  EXPECT_EQ(read.calls[0].index, 0U);
  EXPECT_EQ(read.calls[1].index, 3U);
  EXPECT_EQ(read.num_damaged, 1U);
}

TEST_F(CollectiveLogFile, GarbageInAnyByteIsRefusedOrLeftOut) {
  {
    const auto log = CollectiveLog::create(path(), owner_of_rank(1, 2), 8);
    const int dp = log->add_communicator(kGather);
    log->add_communicator({.group = "world", .channel = "reduce", .size = 2, .position = 1, .group_hash = 5});
    std::uint64_t chain = 0;
    for (std::uint64_t sequence = 0; sequence < 12; ++sequence) log->finished(add(*log, dp, sequence, chain));
    log->end(4, "gone");
  }
  const std::string whole = bytes();
  std::mt19937 random(20'240'801);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  const int file = memfd_create("log", MFD_CLOEXEC);
  const std::string in_memory = fmt::format("/proc/self/fd/{}", file);
  int refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string damaged = whole;
    for (std::size_t change = below(4) + 1; change > 0; --change) {
      // Half of the changes in the live part of the header and the table's first entries: few bytes, but the ones that steer.
      const std::size_t at = below(2) == 0 ? below(whole.size()) : below(4096 + 2 * 128);
      const std::size_t length = std::min(below(16) + 1, whole.size() - at);
      for (std::size_t i = 0; i < length; ++i) damaged[at + i] = below(3) == 0 ? '\xff' : static_cast<char>(below(256));
    }
    if (below(8) == 0) damaged.resize(below(damaged.size()));
    ASSERT_EQ(ftruncate(file, static_cast<off_t>(damaged.size())), 0);
    ASSERT_EQ(pwrite(file, damaged.data(), damaged.size(), 0), static_cast<ssize_t>(damaged.size()));
    try {
      const RankLog read = read_collective_log(in_memory);
      ASSERT_LE(read.calls.size(), 8U);
      for (const LoggedCall& call : read.calls) {
        const CollectiveIdentity expected = identity_of(call.identity.sequence);
        ASSERT_EQ(std::memcmp(&call.identity, &expected, sizeof(expected)), 0);
        ASSERT_LT(static_cast<std::size_t>(call.communicator), read.communicators.size());
      }
      const Verdict verdict = judge({.logs = {read}, .liveness = {Liveness::kDead}});
      ASSERT_EQ(verdict.ranks.size(), 2U);
      ASSERT_FALSE(verdict.text().empty());
    } catch (const DataError& error) {
      ASSERT_NE(std::string(error.what()).find(in_memory), std::string::npos);
      ++refused;
    }
  }
  close(file);
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 9900);
}

TEST(ProcessState, KnowsThisProcessAndThatNobodyHasPidMinusOne) {
  const auto own = process_state(getpid());
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->state, 'R');
  EXPECT_GT(own->start_time, 0U);
  EXPECT_FALSE(process_state(-1).has_value());
}

TEST(ProcessState, AStoppedProcessIsSeenAsStopped) {
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(process_state(child)->state, 'T');
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace tessera
