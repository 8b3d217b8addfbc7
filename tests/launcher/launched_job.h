// Model T under `tessera launch` as users start it, for tests that disturb it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/launcher/programs.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/train/train_job.h"

namespace tessera::test {

class LaunchedJob : public ::testing::Test {
 protected:
  // `steps` steps, hashed at the last, in a job that saves every `every` steps; more: sections of its own.
  void write_job(int steps, int every, const std::string& more = "") const {
    write_tokens(directory / "train.bin", 2000, 64);
    std::ofstream(directory / "job.yaml") << fmt::format(
        "run: {{name: t, steps: {0}, hash_every: {0}}}\n"
        "model: {{num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}}\n"
        "data: {{train: [train.bin]}}\n"
        "batch: {{global_batch_size: 8, micro_batch_size: 2}}\n"
        "reproducibility: {{lanes: 4}}\n"
        "device: {{threads: 1}}\n"
        "collectives: {{timeout_seconds: 3}}\n"
        "checkpoint: {{every: {1}}}\n{2}",
        steps, every, more);
  }
  CommandResult run(const std::string& command) const {
    return run_command(command, {.timeout_seconds = 120, .working_directory = directory.path().string()});
  }
  CommandResult launch(const std::string& arguments) const { return run(tessera + "launch " + arguments); }
  // Runs `line` in the background until `when` is true for the shell, does `script`, and waits for the end. $p is the process, $mpirun mpirun and
  // $ranks its children.
  CommandResult disturbed(const std::string& line, const std::string& when, const std::string& script) const {
    return run(fmt::format(
        "{} > out & p=$!; touch out; until {}; do sleep 0.02; done; mpirun=$p; [ $(cat /proc/$p/comm) = mpirun ] || "
        "mpirun=$(pgrep -P $p -x mpirun); ranks=$(pgrep -P $mpirun -x tessera); {}; wait $p; code=$?; cat out; exit "
        "$code",
        line, when, script));
  }
  std::string contents(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory / name).rdbuf();
    return text.str();
  }
  // Of the last line of a run's metrics.jsonl.
  std::string last_hash(const std::string& run_directory) const {
    const std::string text = contents(run_directory + "/metrics.jsonl");
    const auto at = text.rfind("\"state_hash\"");
    return at == std::string::npos ? "none" : text.substr(at);
  }
  // Processes of this program or of mpirun that work in the test's directory, after their last moments.
  std::string left() const {
    return run(fmt::format("for i in $(seq 60); do left=; for p in $(pgrep -x 'tessera|mpirun|orted'); do "
                           "[ \"$(readlink /proc/$p/cwd)\" != {} ] || left=\"$left $p\"; done; "
                           "[ -n \"$left\" ] || break; sleep 0.1; done; printf '%s' \"$left\"",
                           directory.path().string()))
        .out;
  }

  const std::string tessera = kTessera;
  TemporaryDirectory directory;
};

}  // namespace tessera::test
