// A command of the program, run inside the test as a user types it. For tests/tools alone.
#pragma once

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "tools/help_command.h"

namespace tessera::test {

struct ToolResult {
  int code = -1;      // exit code
  std::string out;    // stdout
  std::string error;  // the line of an Error; "" where none was thrown

  bool printed(const std::string& text) const { return out.find(text) != std::string::npos; }
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

// add: add_plan_command, for example. words: what follows "tessera".
inline ToolResult run_tool(void (*add)(CLI::App& app, int& exit_code), std::vector<std::string> words) {
  CLI::App app;
  style_help(app);
  ToolResult result;
  int exit_code = -1;
  add(app, exit_code);
  words.insert(words.begin(), "tessera");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  try {
    result.code = parse_and_run(app, static_cast<int>(argv.size()), argv.data(), exit_code);
  } catch (const Error& error) {
    result.code = static_cast<int>(error.exit_code());
    result.error = error.line();
  }
  result.out = testing::internal::GetCapturedStdout();
  return result;
}

}  // namespace tessera::test
