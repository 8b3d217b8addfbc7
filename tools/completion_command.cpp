#include "tools/completion_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

namespace tessera {
namespace {

// One case per command: the words "train", "config check"; its subcommands and long options.
void describe_command(const CLI::App& app, const std::string& path, std::string& cases) {
  std::string words;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    words += command->get_name() + " ";
    describe_command(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), cases);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  }
  if (!words.empty()) words.pop_back();
  cases += fmt::format("    '{}') words='{}' ;;\n", path, words);
}

std::string bash_script(const CLI::App& root) {
  std::string cases;
  describe_command(root, "", cases);
  return fmt::format(R"(# bash completion for tessera; use: source <(tessera completion bash)
_tessera() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path= word words=
  # The command so far: leading words that are no options.
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " $(_tessera_words "$path") " in
      *" $word "*) [[ $word == -* ]] || path=${{path:+$path }}$word ;;
    esac
  done
  words=$(_tessera_words "$path")
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ $current == -* || -z $path ]] || COMPREPLY+=($(compgen -f -- "$current"))
}}
_tessera_words() {{
  local words=
  case $1 in
{}  esac
  echo "$words"
}}
complete -o filenames -F _tessera tessera
)",
                     cases);
}

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  CLI::App* completion = app.add_subcommand("completion", "shell completion");
  completion->footer("tessera completion bash > ~/.local/share/bash-completion/completions/tessera");
  completion->require_subcommand(1);
  CLI::App* bash = completion->add_subcommand("bash", "the completion script for bash");
  bash->footer("source <(tessera completion bash)");
  bash->callback([&app, &exit_code] {
    std::cout << bash_script(app);
    exit_code = 0;
  });
}

}  // namespace tessera
