#include "launcher/wrong_start.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

std::optional<WrongStart> found_in(const std::map<std::string, std::string>& environment) {
  return find_wrong_start([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(WrongStart, IsATaskOfManyWithoutPmix) {
  const auto slurm = found_in({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "0"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->line, "launch: 8 tasks but no PMIx; hint: srun --mpi=pmix, or mpirun");
  EXPECT_TRUE(found_in({{"PMI_SIZE", "2"}}));
  EXPECT_TRUE(found_in({{"WORLD_SIZE", "2"}, {"RANK", "0"}}));
}

TEST(WrongStart, IsSaidByTaskZeroAlone) {
  EXPECT_TRUE(found_in({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "0"}})->first);
  EXPECT_FALSE(found_in({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "3"}})->first);
  EXPECT_FALSE(found_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})->first);
  EXPECT_FALSE(found_in({{"WORLD_SIZE", "2"}, {"RANK", "1"}})->first);
}

TEST(WrongStart, IsNotAJobThatMpiWillFind) {
  EXPECT_FALSE(found_in({{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "1"}}));
  EXPECT_FALSE(found_in({{"WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_SIZE", "8"}}));
}

TEST(FirstTask, IsKnownFromTheEnvironmentOfEveryLauncher) {
  const auto first = [](const std::map<std::string, std::string>& environment) {
    return is_first_task([&](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_TRUE(first({}));
  EXPECT_TRUE(first({{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}));
  EXPECT_FALSE(first({{"OMPI_COMM_WORLD_RANK", "1"}}));
  EXPECT_FALSE(first({{"PMIX_RANK", "3"}}));
  EXPECT_FALSE(first({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "5"}}));
}

TEST(WrongStart, IsNotASingleTask) {
  EXPECT_FALSE(found_in({}));
  EXPECT_FALSE(found_in({{"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(found_in({{"WORLD_SIZE", "1"}}));
}

}  // namespace
}  // namespace tessera
