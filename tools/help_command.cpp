#include "tools/help_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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
      if (option->get_group().empty() || option == app->get_help_ptr()) continue;
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

int usage_error(const std::string& name, std::string what, const std::string& hint) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  std::cerr << fmt::format("{}: {}; hint: {}\n", name, what, hint);
  return static_cast<int>(ExitCode::kUsage);
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
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::CallForHelp&) {
    std::cout << reached(app).help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << "\n";
    return 0;
  } catch (const CLI::ParseError& error) {
    const std::string name = full_name(reached(app));
    return usage_error(name, error.what(), name + " --help");
  }
}

}  // namespace tessera
