#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/presence.h"
#include "runtime/base/clock.h"

namespace tessera {
namespace {

// Two ranks: this process, and a child that does `body` and is gone.
class PresenceOfTwo : public ::testing::Test {
 protected:
  void start(const std::function<void(Presence&)>& body) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
    child = fork();
    if (child == 0) {
      Presence peer(1, [&](const std::string& mine) { return exchange(ends[1], 1, mine); });
      char word = 0;
      if (read(ends[1], &word, 1) == 1) body(peer);
      _exit(0);
    }
    presence.emplace(0, [&](const std::string& mine) { return exchange(ends[0], 0, mine); });
    socket = ends[0];
  }
  static std::vector<std::string> exchange(int socket, int rank, const std::string& mine) {
    std::array<char, 1024> text{};
    if (write(socket, mine.data(), mine.size()) < 0) _exit(1);
    const ssize_t size = read(socket, text.data(), text.size());
    std::vector<std::string> texts(2, mine);
    texts[static_cast<std::size_t>(1 - rank)] = std::string(text.data(), static_cast<std::size_t>(size));
    return texts;
  }
  void go() const { ASSERT_EQ(write(socket, "g", 1), 1); }
  // What the peer looks like once its process has ended.
  PeerSigns after_its_end() {
    const double deadline = monotonic_seconds() + 30;
    while (!presence->peers()[0].gone && monotonic_seconds() < deadline) presence->wait(-1, 1000);
    return presence->peers()[0];
  }
  void TearDown() override {
    if (child > 0) waitpid(child, nullptr, 0);
    if (socket >= 0) close(socket);
  }

  pid_t child = -1;
  int socket = -1;
  std::optional<Presence> presence;
};

TEST_F(PresenceOfTwo, SeesAPeerThatRuns) {
  start([](Presence&) {});
  const PeerSigns sign = presence->peers().at(0);
  EXPECT_EQ(sign.world_rank, 1);
  EXPECT_EQ(sign.pid, child);
  EXPECT_TRUE(sign.visible);
  EXPECT_FALSE(sign.gone);
  EXPECT_EQ(presence->liveness(1), Liveness::kRunning);
  go();
}

TEST_F(PresenceOfTwo, SeesThatAPeerDied) {
  start([](Presence&) { raise(SIGKILL); });
  go();
  const PeerSigns sign = after_its_end();
  EXPECT_TRUE(sign.gone);
  EXPECT_EQ(sign.state, TeardownState::kRunning);
  EXPECT_EQ(sign.failed_code, 0);
  EXPECT_EQ(presence->liveness(1), Liveness::kDead);
}

TEST_F(PresenceOfTwo, ReadsWhatAPeerShowedBeforeItEnded) {
  start([](Presence& peer) {
    peer.show(TeardownState::kBarrier);
    peer.show_failed(70);
    peer.show_spoke();
  });
  go();
  const PeerSigns sign = after_its_end();
  EXPECT_TRUE(sign.gone);
  EXPECT_EQ(sign.state, TeardownState::kBarrier);
  EXPECT_EQ(sign.failed_code, 70);
  EXPECT_TRUE(sign.spoke);
}

TEST(Presence, KnowsNothingOfAnotherMachine) {
  const Presence presence(0, [](const std::string& mine) {
    return std::vector<std::string>{mine, "1 1 1 3 elsewhere"};  // another pid domain
  });
  const PeerSigns sign = presence.peers().at(0);
  EXPECT_FALSE(sign.visible);
  EXPECT_FALSE(sign.gone);
  EXPECT_EQ(sign.host, "elsewhere");
  EXPECT_EQ(presence.liveness(1), Liveness::kUnknown);
}

}  // namespace
}  // namespace tessera
