// A rank without a job, for tests of the session and of the ways out of it: tessera_session_program WHAT [RANK…].
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "launcher/mpi_session.h"
#include "launcher/rank_guard.h"
#include "launcher/stop_signal.h"
#include "launcher/supervisor.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

// Stands for ranks that wait for one that is gone.
[[noreturn]] void wait_for_ever(MpiSession& session) {
  for (;;) session.barrier();
}

ExitCode run(MpiSession& session, const std::string& what, const std::set<int>& ranks) {
  const bool chosen = ranks.contains(session.rank());
  if (what == "finish") {
    const auto names = session.all_gather(fmt::format("rank {}", session.rank()));
    require(names.back() == fmt::format("rank {}", session.size() - 1), "texts come by rank");
    session.barrier();
    return ExitCode::kDone;
  }
  if (what == "agree") {  // an error of the start, on some ranks
    session.agree([] {});
    session.agree([&] {
      if (chosen) throw DataError(fmt::format("data: file of rank {} is empty", session.rank()), "write to it");
    });
    wait_for_ever(session);  // never reached: all ranks left
  }
  if (what == "throw") {  // an error of the run, on some ranks; the others wait for them
    if (chosen) throw DeviceError(fmt::format("memory: rank {} has none", session.rank()));
    wait_for_ever(session);
  }
  if (what == "bug") {
    if (chosen) throw std::logic_error("surprise");
    wait_for_ever(session);
  }
  if (what == "stopped") return ExitCode::kStoppedUnsaved;
  if (what == "killed" && chosen) std::raise(SIGKILL);
  if (what == "killed") wait_for_ever(session);
  if (what == "deaf") {  // never answers a request to stop
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (what == "wait-for-stop") {
    std::printf("ready\n");
    std::fflush(stdout);
    while (!stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    session.barrier();
    if (session.rank() == 0) std::printf("%s\n", signal_name(stop_signal()));
    return ExitCode::kStoppedUnsaved;
  }
  throw InternalError("no such mode: " + what);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  // Not a rank: the launcher of `tessera launch` around any line.
  if (argc > 2 && std::string(argv[1]) == "supervise") {
    return tessera::run_guarded([&] { return tessera::run_job({.arguments = std::vector<std::string>(argv + 2, argv + argc)}); });
  }
  std::set<int> ranks;
  for (int i = 2; i < argc; ++i) ranks.insert(std::atoi(argv[i]));
  return tessera::run_guarded([&] {
    tessera::install_stop_signals();
    tessera::MpiSession session;
    return tessera::run_rank(session, [&] { return tessera::run(session, argc > 1 ? argv[1] : "finish", ranks); });
  });
}
