// What tests ask of texts: messages, logs, output of programs.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace tessera::test {

// How often `part` is in the text, without overlaps.
inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no '" << part << "' in: " << text;
}

// The message of the Expected that `body` throws; other errors pass.
template <typename Expected, typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Expected& error) {
    return error.what();
  }
  return "(accepted)";
}

}  // namespace tessera::test
