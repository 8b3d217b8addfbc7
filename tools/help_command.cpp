#include "tools/help_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launcher/wrong_start.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? "tessera" : full_name(*app.get_parent()) + " " + app.get_name();
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Two columns; the left one as wide as its widest entry, within reason.
std::string table(const Rows& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::string text;
  for (const auto& [left, right] : rows)
    text += fmt::format("  {:<{}}  {}\n", left, std::min<std::size_t>(width, 34), right);
  return text;
}

// Positional arguments are shown in capitals, however a command spells them.
std::string positional_name(const CLI::Option& option) {
  std::string name = option.get_name(true, false);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return name;
}

// What stands for the value: the command's own word, or N for a number, or the type in capitals.
std::string value_name(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  const std::string type = option.get_type_name();
  const bool number = type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
  return number ? "N" : type.substr(0, type.find(':'));
}

std::string option_name(const CLI::Option& option) {
  std::string name = option.get_name(false, true);
  if (const auto comma = name.find(','); comma != std::string::npos) name.replace(comma, 1, ", ");
  const bool takes_value = option.get_expected_min() > 0 && option.get_type_size() != 0;
  return takes_value ? name + " " + value_name(option) : name;
}

std::pair<std::string, std::string> row_of(const CLI::Option& option) {
  const bool positional = option.get_positional() && option.get_lnames().empty();
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" ({})", option.get_default_str());
  return {positional ? positional_name(option) : option_name(option), text};
}

class HelpFormatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/, CLI::AppFormatMode /*mode*/) const override {
    std::string text;
    // A command inherits its parent's footer; those examples are not its own.
    const bool own = app->get_parent() == nullptr || app->get_footer() != app->get_parent()->get_footer();
    if (own && !app->get_footer().empty()) {
      text += "Examples:\n";
      std::istringstream lines(app->get_footer());
      for (std::string line; std::getline(lines, line);) text += fmt::format("  {}\n", line);
      text += "\n";
    }
    text += app->get_description() + "\n\n" + usage(*app);
    Rows rows;
    for (const CLI::App* command :
         app->get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
      rows.emplace_back(command->get_name(), first_line(command->get_description()));
    }
    for (const CLI::Option* option : app->get_options()) {
      const std::string group = option->get_group();
      if (group.empty() || group == kUnlisted || option == app->get_help_ptr()) continue;
      rows.push_back(row_of(*option));
    }
    if (app->get_help_ptr() != nullptr) rows.push_back(row_of(*app->get_help_ptr()));
    return text + table(rows);
  }

 private:
  static std::string usage(const CLI::App& app) {
    std::string text = "Usage: " + full_name(app);
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional() || option->get_group().empty()) continue;
      text += option->get_required() ? " " + positional_name(*option) : " [" + positional_name(*option) + "]";
      if (option->get_items_expected_max() > 1) text += "…";
    }
    if (!app.get_subcommands([](const CLI::App*) { return true; }).empty()) text += " COMMAND";
    return text + " [options]\n";
  }
};

// The innermost command that the arguments reached: its --help is the one to name.
const CLI::App& reached(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : reached(*chosen.back());
}

// The word that stands where the name of a command should, and the command whose subcommands it is not among.
struct UnknownCommand {
  const CLI::App* parent = nullptr;
  std::string word;
};

UnknownCommand find_unknown_command(const CLI::App& root, int argc, char** argv) {
  const CLI::App* command = &root;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto subcommands = command->get_subcommands([](const CLI::App*) { return true; });
    if (subcommands.empty() || word.starts_with("-")) return {};
    const auto match = std::find_if(subcommands.begin(), subcommands.end(),
                                    [&](const CLI::App* sub) { return sub->get_name() == word; });
    if (match == subcommands.end()) return {command, word};
    command = *match;
  }
  return {};
}

// Ranks that mpirun started with one command line all come here: one of them speaks.
void say(std::ostream& stream, const std::string& text) {
  if (is_first_task()) stream << text;
}

int usage_error(const std::string& name, std::string what, const std::string& hint) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  say(std::cerr, fmt::format("{}: {}; hint: {}\n", name, what, hint));
  return static_cast<int>(ExitCode::kUsage);
}

// What an option takes, from CLI11's name for its type and its check: "INT:POSITIVE", "TEXT:{auto,bar,plain}", "INT:INT in [1 - 9]".
std::string expectation(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (const auto open = type.find('{'); open != std::string::npos) {
    std::string words = type.substr(open + 1, type.find('}') - open - 1);
    for (std::size_t at = 0; (at = words.find(',', at)) != std::string::npos; at += 2) words.replace(at, 1, ", ");
    return "one of " + words;
  }
  const bool whole = type.starts_with("INT") || type.starts_with("UINT");
  const std::string number = whole ? "a whole number" : "a number";
  if (type.find("NONNEGATIVE") != std::string::npos) return number + " of at least 0";
  if (type.find("POSITIVE") != std::string::npos) return number + (whole ? " of at least 1" : " above 0");
  if (const auto open = type.find('['), dash = type.find(" - ");
      open != std::string::npos && dash != std::string::npos) {
    return fmt::format("{} from {} to {}", number, type.substr(open + 1, dash - open - 1),
                       type.substr(dash + 3, type.find(']') - dash - 3));
  }
  return whole || type.starts_with("FLOAT") ? number : "another value";
}

// CLI11 names the bounds of a range as doubles, all 309 digits of them, and an option's type by its own word for it.
std::string in_plain_words(const CLI::App& command, const CLI::ParseError& error) {
  const std::string what = error.what();
  const bool conversion = dynamic_cast<const CLI::ConversionError*>(&error) != nullptr;
  const bool missing = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  if (!conversion && !missing && dynamic_cast<const CLI::ValidationError*>(&error) == nullptr) return what;
  const std::string mark = "Could not convert: ";
  const std::size_t from = what.starts_with(mark) ? mark.size() : 0;
  const std::string name = what.substr(from, what.find(from > 0 ? " =" : ":", from) - from);
  const CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr) return what;
  if (option->results().empty() || option->results().back().empty() || missing) {
    return fmt::format("{}: expected {}", name, expectation(*option));
  }
  const std::string& found = option->results().back();
  if (conversion && found.find_first_not_of("0123456789") == std::string::npos)
    return fmt::format("{}: {} is too large", name, found);
  return fmt::format("{}: found '{}', expected {}", name, found, expectation(*option));
}

// A command that could not say what it found must not report success.
void check_output() {
  std::cout.flush();
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return;
  throw DeviceError(fmt::format("stdout: not all of the output could be written{}{}", errno != 0 ? ": " : "",
                                errno != 0 ? std::strerror(errno) : ""));
}

int run_parsed(CLI::App& app, int argc, char** argv, const int& exit_code) {
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::CallForHelp&) {
    say(std::cout, reached(app).help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    say(std::cout, fmt::format("{}\n", version.what()));
    return 0;
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = reached(app);
    const std::string name = full_name(command);
    return usage_error(name, in_plain_words(command, error), name + " --help");
  }
}

}  // namespace

void style_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "this page");
}

int parse_and_run(CLI::App& app, int argc, char** argv, const int& exit_code) {
  if (const UnknownCommand unknown = find_unknown_command(app, argc, argv); unknown.parent != nullptr) {
    std::string names;
    for (const CLI::App* sub :
         unknown.parent->get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); })) {
      names += (names.empty() ? "" : ", ") + sub->get_name();
    }
    return usage_error(full_name(*unknown.parent), fmt::format("unknown command '{}'", unknown.word), names);
  }
  const int code = run_parsed(app, argc, argv, exit_code);
  if (code == 0) check_output();
  return code;
}

}  // namespace tessera
