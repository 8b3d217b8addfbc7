// Thousands of damaged job files: each loads or is refused with problems that name the file; none crashes, hangs or
// throws.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>

#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

// A small generator of its own (xorshift64*, Vigna 2016), so that the files are the same on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::size_t below(std::size_t bound) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::size_t>((state_ * 0x2545F4914F6CDD1DULL) >> 33) % bound;
  }

 private:
  std::uint64_t state_;
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string mutated(std::string text, Dice& dice) {
  static const std::vector<std::string> pieces = {":",     ": ",     "\n",
                                                  "- ",    "[",      "]",
                                                  "{",     "}",      "\"",
                                                  "'",     "#",      "&a ",
                                                  "*a",    "!!int ", "|",
                                                  ">",     "? ",     "---\n",
                                                  "...\n", "\t",     "~",
                                                  "<<: ",  "0",      "-",
                                                  ".nan",  "1e999",  "0010",
                                                  "true",  "null",   "%TAG ! x\n",
                                                  "\\x",   "@",      "`",
                                                  "\r",    "é",      std::string(1, '\0'),
                                                  "\xC3",  "  ",     "999999999999999999999999",
                                                  "auto"};
  for (std::size_t edits = 1 + dice.below(6); edits > 0; --edits) {
    const std::size_t at = dice.below(text.size() + 1);
    switch (dice.below(5)) {
      case 0: text.insert(at, pieces[dice.below(pieces.size())]); break;
      case 1: text.erase(at, 1 + dice.below(12)); break;
      case 2: text.resize(at); break;
      case 3: text.insert(at, text.substr(dice.below(text.size() + 1), dice.below(60))); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(dice.below(256));
    }
  }
  return text;
}

TEST(Mutations, LoadOrAreRefusedWithProblems) {
  std::size_t loaded = 0, refused = 0;
  for (const char* name : {"tiny", "gpt2-124m", "tiny-llama"}) {
    const std::string text = read(std::string(TESSERA_SOURCE_DIR) + "/configs/" + name + ".yaml");
    ASSERT_FALSE(text.empty());
    for (std::uint64_t seed = 0; seed < 1500; ++seed) {
      Dice dice(seed);
      const std::string damaged = mutated(text, dice);
      const ConfigResult result = check_config_text(damaged, "job.yaml");
      if (result.problems.empty()) {
        ++loaded;
        const ConfigResult again = check_config_text(to_yaml(result.config), "job.yaml");
        EXPECT_TRUE(again.problems.empty() && again.config == result.config) << damaged;
      } else {
        ++refused;
        for (const ConfigProblem& problem : result.problems) EXPECT_EQ(problem.file, "job.yaml");
      }
    }
  }
  EXPECT_GT(loaded, 100u);
  EXPECT_GT(refused, 1000u);
}

TEST(Mutations, OfOverridesLoadOrAreRefusedWithProblems) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Dice dice(seed);
    const std::string damaged = mutated("optimizer.groups=[{match: norm, weight_decay: 0.1}]", dice);
    for (const ConfigProblem& problem : check_config_text(kModelT, "job.yaml", {damaged}).problems)
      EXPECT_EQ(problem.file, "--set") << damaged;
  }
}

}  // namespace
}  // namespace tessera::testing
