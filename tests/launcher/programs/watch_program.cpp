// Ranks that go wrong where a test wants them to:
//
//   tessera_watch_program calls HOW RANK RUN_DIR LEVEL        a row of all_reduces over the world, in which RANK does HOW at the fifth
//   tessera_watch_program teardown STATE HOW RANK CONFIG RUN_DIR  a job of `tessera train`, in which RANK does HOW on entering STATE
//
// HOW: nothing, kill, exit, stop, loop, throw, more, less.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "launcher/mpi_session.h"
#include "launcher/rank_guard.h"
#include "launcher/stop_signal.h"
#include "launcher/train_job.h"
#include "parallel/mpi/mpi_communicator.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace tessera {
namespace {

constexpr int kNumCalls = 20;
constexpr int kWrongCall = 5;
constexpr double kTimeoutSeconds = 2;

void misbehave(const std::string& how) {
  if (how == "kill") std::raise(SIGKILL);
  if (how == "stop") std::raise(SIGSTOP);
  if (how == "exit") std::exit(0);
  if (how == "throw") throw std::logic_error("surprise");
  if (how == "loop") {
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FingerprintLevel level_of(const std::string& name) {
  return name == "off" ? FingerprintLevel::kOff : name == "log" ? FingerprintLevel::kLog : FingerprintLevel::kStrict;
}

ExitCode make_calls(MpiSession& session, RankGuard& guard, const std::vector<std::string>& words) {
  const std::string &how = words[0], directory = words[2];
  const bool chosen = std::atoi(words[1].c_str()) == session.rank();
  const FingerprintLevel level = level_of(words[3]);
  guard.set_timeout(kTimeoutSeconds);
  const auto factory = make_auto_factory(Placement::canonical(session.size()), {.timeout_seconds = kTimeoutSeconds});
  const auto world = factory->create(canonical_groups({.dp = session.size()}).front(),
                                     {.channel = "reduce", .fingerprint = level, .explain = [&] {
                                        return level == FingerprintLevel::kOff ? "" : verdict_line(directory);
                                      }});
  std::unique_ptr<CollectiveLog> log;
  std::filesystem::create_directories(directory + "/collectives");
  if (level != FingerprintLevel::kOff) {
    LogOwner owner = LogOwner::this_process();
    owner.run_id = 1;
    owner.world_rank = owner.logical_rank = owner.at.dp = session.rank();
    owner.world_size = owner.mesh.dp = session.size();
    log = CollectiveLog::create(fmt::format("{}/collectives/rank-{:05}.log", directory, session.rank()), owner);
    world->attach(*log);
    guard.watch_log(log.get(), directory);
  }
  session.barrier();
  CpuDevice device;
  const Stream stream = device.create_stream("reduce", StreamMode::kQueue);
  std::int64_t value = 1;
  const auto call = [&](int step) {
    world
        ->all_reduce({.data = &value,
                      .count = 1,
                      .dtype = DType::kInt64,
                      .tag = {.what = fmt::format("call.{}", step), .phase = "test", .step = step}},
                     stream.view())
        .synchronize();
  };
  try {
    for (int step = 0; step < kNumCalls; ++step) {
      if (log != nullptr) log->set_step(step);
      if (chosen && step == kWrongCall) {
        misbehave(how);
        if (how == "more") call(100);
        if (how == "less") continue;
      }
      call(step);
    }
  } catch (...) {
    if (log != nullptr) log->end(static_cast<int>(describe(std::current_exception()).code), "failed");
    guard.fail(std::current_exception());
  }
  if (log != nullptr) log->end(0);
  guard.watch_log(nullptr, directory);
  return ExitCode::kDone;
}

int run(const std::vector<std::string>& words) {
  if (words.at(0) == "teardown") {
    const std::string &state = words.at(1), &how = words.at(2), &rank = words.at(3);
    return run_train_job({.config = words.at(4),
                          .run_directory = words.at(5),
                          .progress = "plain",
                          .on_teardown = [&](TeardownState entered) {
                            const char* mine = std::getenv("OMPI_COMM_WORLD_RANK");  // this rank's, as mpirun says it
                            if (mine != nullptr && rank == mine && row_of(entered).name == state) misbehave(how);
                          }});
  }
  install_stop_signals();
  MpiSession session;
  RankGuard guard(session);
  return guard.run([&] { return make_calls(session, guard, {words.begin() + 1, words.end()}); });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run_guarded([&] { return tessera::run({argv + 1, argv + argc}); });
}
