#include "launcher/host_probe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launcher/mpi_session.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

// An agent that reaches a host where "up" is a part of the name, refuses "down", and never returns for others.
class HostProbe : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = directory / "agent";
    std::ofstream(path) << "#!/bin/sh\necho \"$@\" >> " << (directory / "asked").string()
                        << "\ncase $* in *up*) exec sh -c \"$3\" ;; *down*) exit 255 ;; *) sleep 100 ;; esac\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    agent = {path, "-x"};
  }
  std::vector<bool> ask(const std::vector<Host>& hosts, milliseconds limit) const {
    return answering(hosts, agent, limit, [] { return false; });
  }

  test::TemporaryDirectory directory;
  std::vector<std::string> agent;
};

TEST_F(HostProbe, FindsTheHostsWhoseShellAnswers) {
  EXPECT_EQ(ask({{"up-1"}, {"down-1"}, {"up-2"}}, milliseconds(20000)), (std::vector<bool>{true, false, true}));
}

TEST_F(HostProbe, GivesUpOnAHostThatNeverAnswers) {
  EXPECT_EQ(ask({{"silent"}, {"up-1"}}, milliseconds(500)).front(), false);
}

TEST_F(HostProbe, EndsWhereItIsInterrupted) {
  EXPECT_EQ(answering({{"silent"}}, agent, milliseconds(100000), [] { return true; }), (std::vector<bool>{false}));
}

TEST_F(HostProbe, NeedsNoShellToThisHost) {
  EXPECT_EQ(ask({{"localhost"}, {host_name()}, {"127.0.0.1"}}, milliseconds(20000)),
            (std::vector<bool>{true, true, true}));
  EXPECT_FALSE(std::filesystem::exists(directory / "asked"));
  EXPECT_FALSE(is_this_host("192.0.2.1")) << "an address for documents, nobody's";
}

TEST(RemoteAgent, IsTheFirstThatIsThere) {
  const auto only = [](const std::string& name) {
    return [name](const std::string& program) { return program == name; };
  };
  EXPECT_EQ(choose_agent("ssh -p 22 : rsh", only("ssh")), (std::vector<std::string>{"ssh", "-p", "22"}));
  EXPECT_EQ(choose_agent("ssh -p 22 : rsh", only("rsh")), (std::vector<std::string>{"rsh"}));
  EXPECT_EQ(choose_agent("ssh : rsh", only("srun")), std::vector<std::string>{});
}

}  // namespace
}  // namespace tessera
