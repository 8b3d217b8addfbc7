#include "launcher/supervisor.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "launcher/attempt.h"
#include "launcher/fewer_ranks.h"
#include "launcher/host_probe.h"
#include "launcher/log_follower.h"
#include "launcher/restart_rules.h"
#include "launcher/run_evidence.h"
#include "launcher/signal_queue.h"
#include "launcher/stop_signal.h"
#include "launcher/terminal.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/resume.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A shell that has not answered by then would keep mpirun waiting as well.
constexpr seconds kProbe{10};
// What a rank on a host that was cut off takes to end, over its own time-out: it then gives the run directory back.
constexpr seconds kOwnerGrace{60};

void tell(const std::string& line) {
  write_to_terminal(line + "\n");
}

std::string with_hint(const AttemptEnd& end) {
  return end.hint.empty() ? end.why : end.why + "; hint: " + end.hint;
}

class Supervisor {
 public:
  explicit Supervisor(const Supervision& job)
      : job_(job),
        request_(job.request),
        resume_(job.resume),
        began_empty_(is_empty_run(job.run_directory)),
        num_ranks_(compose().num_ranks) {
    if (!job.tee.empty() && !job.run_directory.empty()) {
      follower_ = std::make_unique<LogFollower>(job.run_directory, job.tee, write_to_terminal);
    }
  }

  int run() {
    for (int attempt = 1;; ++attempt) {
      const std::string saved_before = saved();
      const std::uint64_t logs_before = supervised() ? start_of_logs(job_.run_directory) : 0;
      const AttemptEnd end = run_attempt(compose(), signals_, [this] { show(); });
      if (follower_) follower_->finish();
      const LoggedEnd logs = read_logs(end, logs_before);
      const bool again = end.ran && !end.stop_requested && may_start_again(end.code, logs.mismatch);
      if (!again || attempt > job_.max_restarts) return last_words(attempt, end, logs, again);
      without_progress_ = saved() == saved_before ? without_progress_ + 1 : 0;
      if (!prepare_next(attempt, why(end, logs), end.code)) return end_code_;
    }
  }

 private:
  bool supervised() const { return job_.max_restarts > 0 && !job_.run_directory.empty(); }
  LaunchLine compose() const { return compose_launch(request_, facts()); }
  LaunchFacts facts() const {
    LaunchFacts facts = job_.facts;
    if (!left_.empty()) facts.hosts = left_;
    return facts;
  }
  std::string saved() const { return supervised() ? newest_checkpoint(job_.run_directory) : ""; }
  void show() {
    if (follower_) follower_->poll();
  }

  static std::string why(const AttemptEnd& end, const LoggedEnd& logs) {
    if (!logs.why.empty()) return logs.why;
    return end.why.empty() ? meaning_of(end.code) : end.why;
  }

  // logs_before: of the start before; an attempt that ended early has left none of its own.
  LoggedEnd read_logs(const AttemptEnd& end, std::uint64_t logs_before) const {
    if (!supervised() || end.code != static_cast<int>(ExitCode::kCollective)) return {};
    return start_of_logs(job_.run_directory) == logs_before ? LoggedEnd{} : logged_end(job_.run_directory);
  }

  std::string head(int attempt, const std::string& why, int code) const {
    return fmt::format("launch: attempt {} of {} ended: {} (exit code {})", attempt, job_.max_restarts + 1, why, code);
  }

  int last_words(int attempt, const AttemptEnd& end, const LoggedEnd& logs, bool again) const {
    const bool in_order = end.code == static_cast<int>(ExitCode::kDone) || end.stop_requested;
    if (job_.max_restarts > 0 && !in_order) {
      tell(head(attempt, why(end, logs), end.code) + (again ? "" : "; it is not started again after that") +
           (end.hint.empty() ? "" : "; hint: " + end.hint));
    } else if (!end.why.empty() && !end.said) {
      tell("launch: " + with_hint(end));
    }
    return end.code;
  }

  // False: there is no next attempt, and end_code_ says how it ends.
  bool prepare_next(int attempt, const std::string& why, int code) {
    const std::string from = saved();
    end_code_ = code;
    // Another run's directory that the user did not want to go on with stays refused, and one that is still empty takes the same words again.
    if (resume_ != "auto" && began_empty_ && !is_empty_run(job_.run_directory)) {
      if (from.empty() && resume_ != "never") {
        tell(
            fmt::format("{}; not starting again: {} has no checkpoint of its own yet, and --resume {} wants an empty "
                        "run directory; hint: another --run-dir",
                        head(attempt, why, code), job_.run_directory, resume_));
        return false;
      }
      resume_with_auto();
    }
    const seconds pause = pause_before_next(without_progress_);
    tell(fmt::format("{}; starting again{} from {}", head(attempt, why, code),
                     pause.count() > 0 ? fmt::format(" in {} s", pause.count()) : "",
                     from.empty() ? "the beginning: no checkpoint is complete" : from));
    return wait_while([] { return true; }, pause) && wait_for_the_directory() && choose_hosts();
  }

  void resume_with_auto() {
    auto& arguments = request_.arguments;
    if (const auto given = std::ranges::find(arguments, "--resume"); given != arguments.end())
      arguments.erase(given, given + 2);
    arguments.insert(arguments.end(), {"--resume", "auto"});
    resume_ = "auto";
  }

  // At most as long as the limit. False where the user wants no more attempt.
  template <typename Busy>
  bool wait_while(const Busy& busy, seconds limit) {
    const auto deadline = Clock::now() + limit;
    do {
      take_signal(milliseconds(limit.count() > 0 ? 100 : 0));
    } while (!interrupted_ && Clock::now() < deadline && busy());
    return !interrupted_;
  }

  void take_signal(milliseconds timeout) {
    const int signal = signals_.next(timeout);
    if (!asks_to_stop(signal) || interrupted_) return;
    interrupted_ = true;
    end_code_ = static_cast<int>(ExitCode::kStoppedUnsaved);
    tell(fmt::format("launch: {}: between two attempts, nothing runs", signal_name(signal)));
  }

  // A rank that lives on on a host that was cut off ends by its own time-out. Whoever still owns the directory then is named by the ranks.
  bool wait_for_the_directory() {
    const auto owner = job_.run_directory.empty() ? std::nullopt : run_owner(job_.run_directory);
    if (!owner) return !interrupted_;
    const double own = job_.job ? job_.job->collectives.timeout_seconds * 1.25 : 0;
    tell(fmt::format("launch: {} is still held by {}; waiting for it to end", job_.run_directory, *owner));
    return wait_while([this] { return run_owner(job_.run_directory).has_value(); },
                      seconds(static_cast<std::int64_t>(own)) + kOwnerGrace);
  }

  // The hosts that answer, and as many ranks as the job takes on them.
  bool choose_hosts() {
    const std::vector<Host>& named = job_.facts.hosts;
    if (named.size() < 2 || !job_.job) return !interrupted_;
    const auto agent = remote_agent();
    if (!agent) return !interrupted_;
    const std::vector<bool> answers = answering(named, *agent, kProbe, [this] {
      take_signal(milliseconds(0));
      return interrupted_;
    });
    if (interrupted_) return false;
    std::vector<Host> silent;
    for (std::size_t i = 0; i < named.size(); ++i)
      if (!answers[i]) silent.push_back(named[i]);
    return silent.empty() ? go_on_with_all() : go_on_without(silent, answers);
  }

  bool go_on_with_all() {
    if (!left_.empty()) {
      tell(fmt::format("launch: all hosts answer again; going on with {} ranks on {}", num_ranks_,
                       host_names(job_.facts.hosts)));
      left_.clear();
      const std::vector<std::string> arguments = request_.arguments;
      request_ = job_.request;
      request_.arguments = arguments;
    }
    return true;
  }

  // `lanes: auto` is what the job began with, saved or not: another number would be another sum.
  JobConfig job_with_its_lanes() {
    JobConfig config = *job_.job;
    adopt_lanes(config, stored_choices(job_.run_directory, resume_));
    if (config.reproducibility.lanes) return config;
    try {
      config.reproducibility.lanes = resolve(config, num_ranks_).lanes;
      request_.arguments.insert(request_.arguments.end(),
                                {"--set", fmt::format("reproducibility.lanes={}", *config.reproducibility.lanes)});
    } catch (const ConfigError&) {
      // What the first attempt ended with; fewer ranks may fit.
    }
    return config;
  }

  bool go_on_without(const std::vector<Host>& silent, const std::vector<bool>& answers) {
    const std::string head = fmt::format("launch: host{} {} {} not answer", silent.size() == 1 ? "" : "s",
                                         host_names(silent), silent.size() == 1 ? "does" : "do");
    const std::vector<Host>& named = job_.facts.hosts;
    std::vector<Host> left;
    const auto places = places_on_hosts(named, num_ranks_, per_node());
    for (std::size_t i = 0; i < named.size(); ++i)
      if (answers[i]) left.push_back(places[i]);
    // Of more hosts than --nnodes the rest are spares.
    const auto num_nodes = static_cast<std::size_t>(job_.request.num_nodes);
    if (num_nodes > 1 && left.size() > num_nodes) left.resize(num_nodes);
    const JobConfig config = job_with_its_lanes();
    const FewerRanks fewer = fit_ranks(config, left, num_ranks_);
    const int least = job_.request.min_nodes.value_or(1);
    const bool own_user = std::ranges::any_of(left, [](const Host& host) { return !host.user.empty(); });
    if (fewer.num_ranks == 0 || own_user || std::ssize(fewer.hosts) < least) {
      end_code_ = static_cast<int>(ExitCode::kCollective);
      tell(fmt::format("{}, and the job cannot go on without: {}", head,
                       left.empty()           ? "no other host is named"
                       : own_user             ? "hosts with a user name of their own are only taken all together"
                       : fewer.num_ranks == 0 ? fewer.why_not
                                              : fmt::format("--nnodes {}:{} wants more than {}", least,
                                                            job_.request.num_nodes, host_names(fewer.hosts))));
      return false;
    }
    tell(fmt::format("{}; going on with {} of {} ranks on {}", head, fewer.num_ranks, num_ranks_,
                     host_names(fewer.hosts)));
    left_ = fewer.hosts;
    request_.num_ranks = fewer.num_ranks;
    request_.ranks_per_node.reset();
    request_.rank_per_core = false;
    request_.num_nodes = 1;
    request_.hostfile.clear();
    request_.host = host_list(fewer.hosts);
    return true;
  }

  std::optional<int> per_node() const {
    return job_.request.rank_per_core ? std::optional(job_.facts.num_cores) : job_.request.ranks_per_node;
  }

  const Supervision& job_;
  LaunchRequest request_;  // of the next attempt
  std::string resume_;
  bool began_empty_;        // before the first attempt
  std::vector<Host> left_;  // that the next attempt runs on, where some are gone
  SignalQueue signals_;
  int num_ranks_;  // of the first attempt
  std::unique_ptr<LogFollower> follower_;
  int without_progress_ = 0, end_code_ = 0;
  bool interrupted_ = false;
};

}  // namespace

int supervise(const Supervision& job) {
  return Supervisor(job).run();
}

int run_job(const LaunchLine& line) {
  const SignalQueue signals;
  const AttemptEnd end = run_attempt(line, signals, [] {});
  if (!end.why.empty() && !end.said) tell("launch: " + with_hint(end));
  return end.code;
}

}  // namespace tessera
