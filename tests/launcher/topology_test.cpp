#include "launcher/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "launcher/cpuset.h"
#include "runtime/base/error.h"
#include "tests/support/run_command.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

TEST(Topology, OfASyntheticMachineCountsWhatItsTextSays) {
  // 2 packages × 2 NUMA nodes × 3 cores × 2 threads.
  const Topology machine = load_topology("pack:2 numa:2 core:3 pu:2");
  EXPECT_EQ(machine.num_packages, 2);
  EXPECT_EQ(machine.num_numa_nodes, 4);
  ASSERT_EQ(machine.cores.size(), 12U);
  EXPECT_EQ(machine.pus().size(), 24U);
  EXPECT_EQ(machine.cores[0], (Core{.package = 0, .numa_node = 0, .pus = {0, 1}}));
  EXPECT_EQ(machine.cores[11], (Core{.package = 1, .numa_node = 3, .pus = {22, 23}}));
}

TEST(Topology, CountsTheCoresThatACpusetTouches) {
  const Topology machine = load_topology("pack:1 core:4 pu:2");
  EXPECT_EQ(machine.num_cores_of({0, 1}), 1);
  EXPECT_EQ(machine.num_cores_of({1, 2}), 2);
  EXPECT_EQ(machine.num_cores_of({0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(machine.num_cores_of({}), 0);
}

TEST(Topology, OfThisMachineHoldsTheProcessorsOfThisProcess) {
  const Topology machine = load_topology("live");
  const std::vector<int> all = machine.pus();
  for (const int pu : current_cpuset()) EXPECT_NE(std::find(all.begin(), all.end(), pu), all.end()) << pu;
  EXPECT_GE(machine.num_packages, 1);
  EXPECT_GE(machine.num_numa_nodes, 1);
}

TEST(Topology, IsReadFromAnXmlFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "machine.xml";
  std::ofstream(path) << R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="8" local_memory="1073741824"/>
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3">
      <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
      </object>
    </object>
  </object>
</topology>
)";
  const Topology machine = load_topology(path);
  EXPECT_EQ(machine.str(), path + ": 2 cores, 2 PUs, packages 1, NUMA nodes 1; package 0, numa 0: cores 0-1 (PUs 0-1)");
}

TEST(Topology, OfANonsenseTextIsRefusedNamingIt) {
  const test::TemporaryDirectory directory;
  const std::string not_xml = directory / "text.xml";
  std::ofstream(not_xml) << "hello";
  for (const std::string& spec : {std::string("core:x"), std::string("8 cores please"),
                                  std::string("/nowhere/machine.xml"), directory.path().string() + "/.xml", not_xml}) {
    try {
      load_topology(spec);
      ADD_FAILURE() << spec;
    } catch (const ConfigError& error) {
      EXPECT_NE(error.line().find("mesh.topology: '" + spec + "'"), std::string::npos) << error.line();
    }
  }
}

}  // namespace
}  // namespace tessera
