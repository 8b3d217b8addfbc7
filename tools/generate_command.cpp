#include "tools/generate_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "launcher/generate_job.h"

namespace tessera {

void add_generate_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<GenerateOptions>();
  SamplingOptions& sampling = options->sampling;
  CLI::App* command = app.add_subcommand("generate", "text from a checkpoint, on one rank or many");
  command->footer(
      "tessera generate runs/a --prompt \"Once upon a time\"\n"
      "mpirun --quiet -n 2 tessera generate runs/gpt2 --prompt \"The\" --temperature 0\n"
      "tessera generate runs/a/checkpoints/step-00000120 --prompt-file question.txt --seed 7 --json");
  command->add_option("CHECKPOINT", options->checkpoint, "a checkpoint's folder, or a run: its newest that is complete")
      ->required();
  command->add_option("--prompt", options->prompts, "text to go on from; repeatable")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  command->add_option("--prompt-file", options->prompt_files, "the same from a file; - is standard input; repeatable")
      ->option_text("FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--max-tokens", options->max_tokens, "tokens to add to each prompt; fewer where a text ends (128)")
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", sampling.temperature, "0: always the likeliest token (0.8)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-k", sampling.top_k, "choose among the K likeliest; 0: all (50)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-p", sampling.top_p, "… and the likeliest whose probabilities reach P (1)");
  command->add_option("--seed", sampling.seed, "the same text for the same seed, on any number of ranks (0)");
  command->add_option("--tokenizer", options->tokenizer, "in place of the run's own: bytes, *.model, tokenizer.json")
      ->option_text("FILE");
  command->add_flag("--json", options->json, "prompts, texts and tokens as one object, at the end");
  command->callback([options, &exit_code] { exit_code = run_generate_job(*options); });
}

}  // namespace tessera
