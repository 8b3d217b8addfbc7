#include "launcher/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

class HostMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::filesystem::path root() { return std::filesystem::path(directory_ / "root"); }
  test::TemporaryDirectory directory_;
};

TEST_F(HostMemory, WithoutALimitItIsTheMachines) {
  write("proc/meminfo", "MemTotal:       16 kB\nMemFree: 1 kB\n");
  EXPECT_EQ(host_memory_bytes(root()), 16 << 10);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/memory.max", "max\n");
  EXPECT_EQ(host_memory_bytes(root()), 16 << 10);
}

TEST_F(HostMemory, TheLeastLimitOfAllGroupsAboveTheProcessCounts) {
  write("proc/meminfo", "MemTotal: 16 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/memory.max", "5000\n");
  write("sys/fs/cgroup/a/b/memory.max", "9000\n");
  EXPECT_EQ(host_memory_bytes(root()), 5000);
}

TEST_F(HostMemory, AContainersGroupMayBeTheRootOfWhatItSees) {
  write("proc/meminfo", "MemTotal: 16 kB\n");
  write("proc/self/cgroup", "9:cpu,memory:/docker/4f\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  EXPECT_EQ(host_memory_bytes(root()), 7000);
}

TEST_F(HostMemory, WhereNothingIsToldItIsUnknown) {
  EXPECT_EQ(host_memory_bytes(root()), 0);
  EXPECT_GT(host_memory_bytes(), 0) << "of this machine";
}

}  // namespace
}  // namespace tessera
