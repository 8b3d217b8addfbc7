// Files that are no job at all: one clear problem, never a crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/config/yaml_tree.h"
#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

constexpr std::string_view kNoAliases =
    "aliases (*name) are not accepted: write the value out, and quote a glob that begins with *";

TEST(YamlText, ThatIsNoMappingIsRefused) {
  const std::string expected = ", expected sections: run, model, data, batch, …";
  EXPECT_EQ(problems_of(""), Lines{"job.yaml: found nothing" + expected});
  EXPECT_EQ(problems_of("# only a comment\n"), Lines{"job.yaml: found nothing" + expected});
  EXPECT_EQ(problems_of("---\n...\n"), Lines{"job.yaml: found nothing" + expected});
  EXPECT_EQ(problems_of("just words\n"), Lines{"job.yaml:1: found just words" + expected});
  EXPECT_EQ(problems_of("\n- a\n- b\n"), Lines{"job.yaml:2: found a list" + expected});
}

TEST(YamlText, WithMoreThanAJobNeedsIsRefused) {
  EXPECT_EQ(problems_of(model_t_and("---\nrun: {steps: 1}\n")),
            Lines{"job.yaml:19: a second YAML document, expected one"});
  EXPECT_EQ(problems_of("---\n" + std::string(kModelT)), Lines{});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "steps: &n 10")),
            Lines{"job.yaml:2: anchors (&name) are not accepted: write the value out"});
  EXPECT_EQ(problems_of(model_t_with("[data/t.bin]", "[*.bin]")), Lines{"job.yaml:10: " + std::string(kNoAliases)});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "steps: !!int 10")),
            Lines{"job.yaml:2: tags (tag:yaml.org,2002:int) are not accepted"});
  EXPECT_EQ(problems_of(model_t_with("  steps: 10", "  steps: 10\n  <<: {seed: 1}")),
            Lines{"job.yaml:3: run.<<: merge keys are not accepted: write the keys out"});
  EXPECT_EQ(problems_of(model_t_with("  steps: 10", "  steps: 10\n  [a, b]: 1")),
            Lines{"job.yaml:3: the key is a list, expected a word"});
}

TEST(YamlText, WithBadBytesIsRefusedWithTheLine) {
  EXPECT_EQ(problems_of(model_t_with("  steps: 10", "\tsteps: 10")),
            Lines{"job.yaml:2: tab in the indentation, expected spaces"});
  EXPECT_EQ(problems_of(model_t_with("  steps: 10", "  steps: 10\t# ten")), Lines{});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", "name: \xFF\xFE")), Lines{"job.yaml:2: byte 0xFF is not UTF-8 text"});
  EXPECT_EQ(problems_of(model_t_with("steps: 10", std::string("name: a\0b", 9))),
            Lines{"job.yaml:2: control character 0x00 in the text"});
  EXPECT_EQ(problems_of("\xEF\xBB\xBF" + std::string(kModelT)), Lines{});  // a byte order mark is fine
  std::string dos(kModelT);
  for (std::size_t at = 0; (at = dos.find('\n', at)) != std::string::npos; at += 2) dos.replace(at, 1, "\r\n");
  EXPECT_EQ(problems_of(dos), Lines{});
}

TEST(YamlText, WithBadSyntaxIsRefusedWithTheLine) {
  for (const std::string text : {"run: {steps: 10\n", "run: [\n", "run:\n  steps: 10\n seed: 1\n", "a: b: c\n",
                                 "run: \"abc\n", "run: 'abc\n\n", "}\n", "%YAML 9.9\n---\na: 1\n"}) {
    const Lines lines = problems_of(text);
    ASSERT_EQ(lines.size(), 1u) << text;
    EXPECT_NE(lines[0].find(": not valid YAML: "), std::string::npos) << lines[0];
  }
}

TEST(YamlText, WithAQuoteNeverClosedIsRefusedAndSwallowsNoKey) {
  const Lines lines = problems_of(model_t_and("device:\n  memory_limit: \"8GiB\n  threads: 2\n"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(": not valid YAML: a quote is never closed"), std::string::npos) << lines[0];
}

TEST(YamlText, OfHostileSizeOrDepthEndsInOneProblem) {
  for (const char* unit : {"[", "{a: ", "- ", "? ", "a: {", "&a [", "\"", "!!x "}) {
    std::string text;
    while (text.size() < 200000) text += unit;
    EXPECT_FALSE(problems_of(text).empty()) << unit;
  }
  EXPECT_EQ(problems_of(std::string(config::kMaxYamlBytes + 1, 'a')),
            Lines{"job.yaml: 1048577 bytes, expected a job file of at most 1048576"});
}

TEST(YamlText, WithThousandsOfProblemsListsTheFirst) {
  std::string text(kModelT);
  for (int i = 0; i < 5000; ++i) text += "zzzzz" + std::to_string(i) + ": 1\n";
  const Lines lines = problems_of(text);
  ASSERT_EQ(lines.size(), 201u);
  EXPECT_EQ(lines[0].rfind("job.yaml:18: zzzzz0: unknown key", 0), 0u);
  EXPECT_EQ(lines[200], "job.yaml: 4800 more problems are not listed");
}

TEST(Yaml, NamesTheLineWhereAQuoteThatIsNeverClosedBegins) {
  const Lines expected{"job.yaml:2: not valid YAML: a quote is never closed"};
  EXPECT_EQ(problems_of("run:\n  name: \"abc\n  steps: 3\nmodel:\n  num_layers: 2\n"), expected);
  EXPECT_EQ(problems_of("run:\n  name: 'it''s\n  steps: 3\nmodel:\n  num_layers: 2\n"), expected);
  EXPECT_EQ(problems_of("run: {name: \"a\\\"b\"} # it's\ndata: {train: [\"abc]}\nmodel:\n  num_layers: 2\n"), expected);
}

TEST(Yaml, NamesTheLineThatIsNestedTooDeep) {
  const Lines expected{"job.yaml:3: not valid YAML: nested more than 64 deep"};
  EXPECT_EQ(problems_of("run: {name: x}\nmodel:\n  a: " + std::string(5000, '[') + "\n"), expected);
  EXPECT_EQ(problems_of("run: {name: x}\nmodel:\n  a: " + std::string(65, '{') + "\n"), expected);
}

class JobFile : public ::testing::Test {
 protected:
  JobFile() : folder_(std::filesystem::temp_directory_path() / ("tessera-config-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~JobFile() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Lines problems(const std::string& file) const {
    Lines lines;
    for (const ConfigProblem& problem : check_config(file).problems) lines.push_back(problem.line_text());
    return lines;
  }

  std::filesystem::path folder_;
};

TEST_F(JobFile, ThatCannotBeReadIsNamed) {
  EXPECT_EQ(problems(path("absent.yaml")), Lines{path("absent.yaml") + ": cannot be read: No such file or directory"});
  EXPECT_EQ(problems(folder_.string()), Lines{folder_.string() + ": a directory, expected a YAML file"});
  EXPECT_EQ(problems("/dev/null"), Lines{"/dev/null: not a regular file, expected a YAML file"});
  std::ofstream(path("empty.yaml"));
  EXPECT_EQ(problems(path("empty.yaml")), Lines{path("empty.yaml") + ": empty, expected a YAML file"});
  std::ofstream(path("huge.yaml")) << std::string(2 << 20, '#');
  EXPECT_EQ(problems(path("huge.yaml")),
            Lines{path("huge.yaml") + ": 2097152 bytes, expected a job file of at most 1048576"});
}

TEST_F(JobFile, GivesTheRunItsName) {
  std::ofstream(path("my-job.yaml")) << kModelT;
  EXPECT_EQ(load_config(path("my-job.yaml")).run.name, "my-job");
  EXPECT_EQ(load_config(path("my-job.yaml"), {"run.name=other"}).run.name, "other");
  std::ofstream(path("...yaml")) << kModelT;  // without its suffix "..": runs/.. is no place for a run
  EXPECT_EQ(load_config(path("...yaml")).run.name, "run");
}

}  // namespace
}  // namespace tessera::testing
