// `tessera launch --max-restarts`: what is started again, from where, on what, and what is not.
#include <filesystem>

#include "launcher/mpi_session.h"
#include "tests/launcher/launched_job.h"

namespace tessera {
namespace {

using test::CommandResult;
using test::count;

class MpiRestart : public test::LaunchedJob {
 protected:
  // The hash that 60 undisturbed steps end with.
  std::string undisturbed() const {
    EXPECT_EQ(launch("-n 1 job.yaml --run-dir undisturbed").exit_code, 0);
    return last_hash("undisturbed");
  }
  // Nobody answers for a host that is not this one, neither to mpirun nor to who asks later.
  CommandResult on_hosts(const std::string& hosts, const std::string& more) const {
    std::ofstream(directory / "agent") << "#!/bin/sh\nexit 255\n";
    return run(
        fmt::format("chmod +x agent; env OMPI_MCA_plm_rsh_agent=$PWD/agent {}launch -n 4 --host {} --max-restarts 1 "
                    "job.yaml --run-dir r {}",
                    tessera, hosts, more));
  }
};

TEST_F(MpiRestart, ALostRankIsFollowedByAStartFromTheLastGoodStepWithTheSameBits) {
  write_job(60, 7);
  const CommandResult result =
      launch("-n 2 --max-restarts 2 --tee 1 job.yaml --run-dir r --set 'chaos=[{rank: 1, step: 40, fault: kill}]'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.err, "\nlaunch: attempt 1 of 3 ended: "), 1) << result.err;
  EXPECT_EQ(count(result.err, " (exit code 4); starting again from step-000000"), 1) << result.err;
  EXPECT_EQ(count(result.out, "resumed step "), 1) << result.out;
  EXPECT_EQ(count(result.out, ", certificate ok\n"), 1) << result.out;
  EXPECT_EQ(last_hash("r"), undisturbed());
  EXPECT_EQ(count(contents("r/metrics.jsonl"), "\"grad_norm\""), 60) << "each step once";
  // --tee: the lines of rank 1's logs, of both attempts and nothing else.
  std::istringstream lines(result.err);
  std::string teed;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("[rank 1] ")) teed += line.substr(9) + "\n";
  std::string logs = contents("r/attempts/1/logs/rank-00001.log") + contents("r/logs/rank-00001.log");
  const std::string identity = fmt::format("[rank 1/2 {}] ", host_name());
  for (auto at = logs.find(identity); at != std::string::npos; at = logs.find(identity))
    logs.erase(at, identity.size());
  EXPECT_EQ(teed, logs);
  EXPECT_EQ(left(), "");
}

TEST_F(MpiRestart, WithoutACheckpointItBeginsAgainSayingSo) {
  write_job(60, 0);
  const CommandResult result = launch(
      "-n 2 --max-restarts 1 job.yaml --run-dir r --resume never --set 'chaos=[{rank: 0, step: 20, fault: throw}]'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.err,
                  "launch: attempt 1 of 2 ended: an internal error (exit code 70); starting again in 1 s from the "
                  "beginning: no checkpoint is complete\n"),
            1)
      << result.err;
  EXPECT_EQ(count(result.out, "note: files of an earlier run without checkpoints moved to r/attempts/1"), 1)
      << result.out;
  EXPECT_EQ(last_hash("r"), undisturbed());
}

// What --resume names is where the first attempt begins; the next must neither go on with a run that the user did not mean nor train from nothing.
TEST_F(MpiRestart, AResumeFromElsewhereIsNotRepeatedBeforeItHasSavedAnything) {
  write_job(60, 7);
  ASSERT_EQ(launch("-n 2 job.yaml --run-dir first --set run.steps=14 --set run.hash_every=0").exit_code, 0);
  const std::string line =
      "-n 2 --max-restarts 2 job.yaml --resume first --allow-change run.hash_every --run-dir {} --set "
      "'chaos=[{{rank: 1, step: {}, fault: kill}}]'";
  const CommandResult early = launch(fmt::format(fmt::runtime(line), "early", 16));
  EXPECT_EQ(early.exit_code, 4);
  EXPECT_EQ(count(early.err,
                  "; not starting again: early has no checkpoint of its own yet, and --resume first wants an "
                  "empty run directory; hint: another --run-dir\n"),
            1)
      << early.err;
  const CommandResult late = launch(fmt::format(fmt::runtime(line), "late", 40));
  EXPECT_EQ(late.exit_code, 0) << late.err;
  EXPECT_EQ(last_hash("late"), undisturbed());
}

TEST_F(MpiRestart, ThereAreNoMoreThanWereAllowed) {
  write_job(60, 7);
  const CommandResult result = launch(
      "-n 2 --max-restarts 1 job.yaml --run-dir r --set 'chaos=[{rank: 1, step: 20, fault: kill}, {rank: 0, step: "
      "30, fault: exit}]'");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(count(result.err, "launch: attempt 1 of 2 ended: "), 1) << result.err;
  EXPECT_EQ(count(result.err, "launch: attempt 2 of 2 ended: "), 1) << result.err;
  EXPECT_EQ(launch("-n 2 job.yaml --run-dir r").exit_code, 0) << "and the same command goes on";
}

// Each fault fires once: another start would end well.
TEST_F(MpiRestart, WhatTheUserHasToMendIsNotStartedAgain) {
  write_job(8, 2);
  const auto code = [&](const std::string& more, const std::string& why) {
    const CommandResult result = launch("-n 2 --max-restarts 2 job.yaml --run-dir r " + more);
    EXPECT_EQ(count(result.err, "starting again"), 0) << result.err;
    EXPECT_EQ(count(result.err, why), 1) << result.err;
    std::filesystem::remove_all(directory / "r");
    return result.exit_code;
  };
  EXPECT_EQ(code("--set optimizer.weigth_decay=1", "optimizer.weigth_decay: unknown key"), 2);
  EXPECT_EQ(code("--set model.vocab_size=3", "is outside model.vocab_size 3"), 3);
  EXPECT_EQ(code("--set device.memory_limit=600KiB", "memory: a rank needs "), 6);
  EXPECT_EQ(code("--set run.on_nonfinite=stop --set 'chaos=[{rank: 1, step: 3, fault: nan_loss}]'",
                 "loss or gradient is not finite on rank 1"),
            7);
  EXPECT_EQ(code("--set 'chaos=[{rank: 1, step: 3, fault: swap_collectives}]'", "] program check on "), 4);
  EXPECT_EQ(code("--set collectives.program_check=false --set 'chaos=[{rank: 1, step: 3, fault: swap_collectives}]'",
                 "] collective mismatch at call "),
            4);
}

TEST_F(MpiRestart, ADamagedCheckpointIsNotStartedAgain) {
  write_job(8, 0);
  ASSERT_EQ(launch("-n 2 job.yaml --run-dir r --set checkpoint.every=8").exit_code, 0);
  const CommandResult result = run(
      "for f in r/checkpoints/step-*/shard-*; do printf x | dd of=$f bs=1 seek=3000 conv=notrunc 2> /dev/null; done; " +
      tessera + "launch -n 2 --max-restarts 2 job.yaml --run-dir r --set run.steps=9");
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_EQ(count(result.err, "starting again"), 0) << result.err;
}

TEST_F(MpiRestart, AnMpirunThatIsKilledTakesItsRanksAlong) {
  write_job(1000000, 20);
  const CommandResult result =
      disturbed(tessera + "launch -n 2 --max-restarts 1 job.yaml --run-dir r", "[ -d r/checkpoints/step-00000020 ]",
                "kill -9 $mpirun; until grep -q 'resumed step' out; do sleep 0.05; done; for r in $ranks; do [ ! -d "
                "/proc/$r ] || echo \"$r lives\"; done; kill -TERM $p");
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_EQ(count(result.out, " lives"), 0) << result.out;
  EXPECT_EQ(count(result.err,
                  "attempt 1 of 2 ended: mpirun was ended by signal 9 (Killed) (exit code 4); starting again "
                  "from step-"),
            1)
      << result.err;
  EXPECT_EQ(left(), "");
}

TEST_F(MpiRestart, ASignalBetweenTwoAttemptsIsObeyed) {
  write_job(60, 0);
  const CommandResult result = run(tessera +
                                   "launch -n 2 --max-restarts 1 job.yaml --run-dir r --set 'chaos=[{rank: 0, step: "
                                   "20, fault: throw}]' > out 2> err & "
                                   "p=$!; touch err; until grep -q 'starting again in' err; do sleep 0.02; done; kill "
                                   "-TERM $p; wait $p; code=$?; cat "
                                   "err >&2; exit $code");
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(count(result.err, "launch: SIGTERM: between two attempts, nothing runs\n"), 1) << result.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "r/attempts"));
}

// As a rank on a host that was cut off: it holds the lock until its own time-out. Taken while the launcher pauses, since nothing was saved.
TEST_F(MpiRestart, AnOwnerThatLivesOnIsWaitedFor) {
  write_job(60, 0);
  const CommandResult result = run(
      tessera +
      "launch -n 2 --max-restarts 1 job.yaml --run-dir r --set 'chaos=[{rank: 0, step: 20, fault: throw}]' > out 2> "
      "err & p=$!; touch err; until grep -q 'starting again in' err; do sleep 0.02; done; "
      "echo 'process 7 on hostb' > r/.lock; flock -x r/.lock sleep 3; wait $p; code=$?; cat err >&2; exit $code");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.err, "launch: r is still held by process 7 on hostb; waiting for it to end\n"), 1)
      << result.err;
}

TEST_F(MpiRestart, ALauncherThatIsKilledLeavesNoRank) {
  write_job(1000000, 20);
  disturbed(tessera + "launch -n 2 --max-restarts 1 job.yaml --run-dir r", "[ -d r/checkpoints/step-00000020 ]",
            "kill -9 $p");
  EXPECT_EQ(left(), "");
  const CommandResult again = launch("-n 2 job.yaml --run-dir r --set run.steps=30 --allow-change run.hash_every");
  EXPECT_EQ(again.exit_code, 0) << again.err << "no lock is left either";
}

TEST_F(MpiRestart, AHostThatDoesNotAnswerIsLeftOut) {
  write_job(60, 7);
  const CommandResult result = on_hosts("localhost:2,192.0.2.1:2", "--set reproducibility.lanes=auto");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.err, "launch: host 192.0.2.1 does not answer; going on with 2 of 4 ranks on localhost\n"), 1)
      << result.err;
  EXPECT_EQ(count(result.out, "step 60/60"), 1) << result.out;
  EXPECT_EQ(count(result.out, " | lanes 4 "), 1) << "of the four ranks that it was meant for: " << result.out;
}

// Nothing of its own is saved yet: the lanes are those of the run that it goes on with.
TEST_F(MpiRestart, AHostThatNeverAnsweredIsLeftOutOfARunThatGoesOnWithAnother) {
  write_job(60, 7);
  ASSERT_EQ(
      launch("-n 1 job.yaml --run-dir first --set run.steps=14 --set run.hash_every=0 --set reproducibility.lanes=2")
          .exit_code,
      0);
  const CommandResult result = on_hosts(
      "localhost:2,192.0.2.1:2", "--resume first --allow-change run.hash_every --set reproducibility.lanes=auto");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "resumed step 14, dp 1 → 2, certificate ok"), 1) << result.out;
  EXPECT_EQ(count(result.out, " | lanes 2 "), 1) << result.out;
}

TEST_F(MpiRestart, NoFewerHostsAreTakenThanTheUserAllows) {
  write_job(60, 7);
  std::ofstream(directory / "agent") << "#!/bin/sh\nexit 255\n";
  std::ofstream(directory / "hosts") << "localhost slots=2\n192.0.2.1 slots=2\n";
  const CommandResult result = run("chmod +x agent; env OMPI_MCA_plm_rsh_agent=$PWD/agent " + tessera +
                                   "launch --nnodes 2:2 --nproc-per-node 2 --hostfile hosts --max-restarts 1 job.yaml");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(count(result.err,
                  "launch: host 192.0.2.1 does not answer, and the job cannot go on without: --nnodes 2:2 "
                  "wants more than localhost\n"),
            1)
      << result.err;
}

TEST_F(MpiRestart, AMeshThatFewerRanksDoNotFitEndsWithFourNamingIt) {
  write_job(60, 7, "mesh: {dp: 4}\n");
  const CommandResult result = on_hosts("localhost:2,192.0.2.1:2", "");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(count(result.err,
                  "launch: host 192.0.2.1 does not answer, and the job cannot go on without: mesh: world "
                  "size 2 != dp 4 × pp 1 × tp 1 = 4; hint: set mesh.dp: auto\n"),
            1)
      << result.err;
}

// All that is on one host ends, and its wire is cut: as a machine that fails.
class MpiLostHost : public test::LaunchedJob {};

TEST_F(MpiLostHost, TheRunGoesOnOnTheOtherWithTheSameBits) {
  write_job(400, 50);
  const CommandResult result =
      run(fmt::format("touch out; {}/tests/support/two_hosts.sh --per-host 2 --launch {} -n 4 --max-restarts 1 "
                      "job.yaml --run-dir r > out "
                      "& p=$!; until grep -q -e 'step *100/' -e skipped out; do sleep 0.05; done; "
                      "ip netns pids tessera-b-$p 2> /dev/null | xargs -r kill -9; ip -n tessera-b-$p link set wire0 "
                      "down 2> /dev/null; "
                      "wait $p; code=$?; cat out; exit $code",
                      TESSERA_SOURCE_DIR, tessera));
  if (result.exit_code == 77) GTEST_SKIP() << result.out;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.err, "launch: host 10.213.77.2 does not answer; going on with 2 of 4 ranks on 10.213.77.1\n"),
            1)
      << result.err;
  EXPECT_EQ(count(result.out, ", dp 4 → 2, certificate ok\n"), 1) << result.out;
  EXPECT_EQ(launch("-n 1 job.yaml --run-dir undisturbed").exit_code, 0);
  EXPECT_EQ(last_hash("r"), last_hash("undisturbed"));
}

}  // namespace
}  // namespace tessera
