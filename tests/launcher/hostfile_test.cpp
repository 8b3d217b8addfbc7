#include "launcher/hostfile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

class Hostfile : public ::testing::Test {
 protected:
  std::vector<Host> read(const std::string& text) const {
    std::ofstream(path) << text;
    return read_hostfile(path);
  }
  // The message behind the file's name.
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const ConfigError& error) {
      const std::string head = "launch: --hostfile " + path;
      EXPECT_TRUE(error.line().starts_with(head)) << error.line();
      return error.line().substr(std::min(error.line().size(), head.size()));
    }
    return "";
  }

  test::TemporaryDirectory directory;
  std::string path = directory / "hosts";
};

// "--hostfile <(scontrol show hostnames)": whoever reads first takes it all.
TEST_F(Hostfile, ThatCanBeReadOnceOnlyIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  try {
    read_hostfile(path);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(),
              "launch: --hostfile " + path +
                  ": is no file, and mpirun has to read it as well; hint: write the hosts into a file, or "
                  "--host a:8,b:8");
  }
}

TEST_F(Hostfile, HasAHostALineWithCommentsAndBlankLines) {
  const std::vector<Host> hosts =
      read("# two of them\n\nnode-a slots=4\n  node-b.cluster slots = 2 max_slots=8  # small\n");
  EXPECT_EQ(hosts, (std::vector<Host>{{"node-a", 4}, {"node-b.cluster", 2}}));
  EXPECT_EQ(count_slots(hosts), 6);
}

TEST_F(Hostfile, WithoutSlotsItDoesNotTellHowMany) {
  const std::vector<Host> hosts = read("node-a slots=4\nnode-b\n");
  EXPECT_EQ(hosts, (std::vector<Host>{{"node-a", 4}, {"node-b"}}));
  EXPECT_EQ(count_slots(hosts), std::nullopt);
}

TEST_F(Hostfile, AHostThatIsListedAgainHasASlotMore) {  // mpirun's rule: each line without slots is one
  EXPECT_EQ(read("a\nb\na\na\n"), (std::vector<Host>{{"a", 3}, {"b"}}));
}

TEST_F(Hostfile, TakesTheNamesThatMpirunHasForSlotsAndAUser) {
  EXPECT_EQ(read("me@a cpu=2\nb count=3 username=you\nc slots=1 slots_max=1 port=2222\n"),
            (std::vector<Host>{{"a", 2, "me"}, {"b", 3, "you"}, {"c", 1}}));
}

TEST_F(Hostfile, RefusesWhatMpirunRefusesNamingTheLine) {
  EXPECT_EQ(refusal("a slots=4\na slots=2\n"),
            ":2: found a again, expected each host once with slots=, or once for each slot without");
  EXPECT_EQ(refusal("a\n\na slots=2\n"),
            ":3: found a again, expected each host once with slots=, or once for each slot without");
  EXPECT_EQ(refusal("a slots=4 bogus=1\n"), ":1: found bogus, expected slots, max_slots, username or port");
  EXPECT_EQ(refusal("a 4\n"), ":1: found 4, expected key=value, as slots=8");
  EXPECT_EQ(refusal("a slots=5 max_slots=4\n"),
            ":1: found slots=5 with max_slots=4, expected no more slots than max_slots");
  EXPECT_EQ(refusal("# nobody\n"), ": names no host; hint: one host a line, \"name slots=8\"");
  for (const std::string slots : {"x", "", "-1", "4x", "99999999999999999999"}) {
    EXPECT_EQ(refusal("a slots=4\nb slots=" + slots + "\n"),
              ":2: found slots=" + slots + ", expected slots= and a number from 0 to 1000000");
  }
  EXPECT_THROW(read_hostfile(directory / "absent"), ConfigError);
  EXPECT_THROW(read_hostfile(directory.path().string()), ConfigError);
}

TEST_F(Hostfile, RefusesAnAddressThatMpirunCannotUse) {  // "illegal character in the following node name"
  EXPECT_NE(refusal("fe80::1 slots=2\n").find(":1: found fe80::1, and mpirun takes no ':' in a host"),
            std::string::npos);
  EXPECT_NE(refusal("a:2\n").find("\"name slots=8\""), std::string::npos);
}

TEST(HostList, HasSlotsBehindAColon) {
  EXPECT_EQ(parse_host_list("a:2,b,c:*"), (std::vector<Host>{{"a", 2}, {"b"}, {"c"}}));
  EXPECT_EQ(parse_host_list("a:2,b:1,a:3"), (std::vector<Host>{{"a", 5}, {"b", 1}}));
  EXPECT_EQ(parse_host_list("+n0,+n1"), std::vector<Host>{});
  EXPECT_EQ(parse_host_list(""), std::vector<Host>{});
  for (const char* bad : {"a:x", "a:", ":2", "a,,b", "a:-1"}) EXPECT_THROW(parse_host_list(bad), ConfigError) << bad;
}

TEST(HostList, IsWrittenAsItIsRead) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 1}};
  EXPECT_EQ(host_list(hosts), "a:2,b:1");
  EXPECT_EQ(parse_host_list(host_list(hosts)), hosts);
  EXPECT_EQ(host_names(hosts), "a, b");
}

}  // namespace
}  // namespace tessera
