// Rows of data and batch.
#include "runtime/config/key_rows.h"

namespace tessera::config {
namespace {

std::string_view accept_tokenizer(std::string_view text) {
  const bool ok = text == "bytes" || text.ends_with(".model") || text.ends_with(".json");
  return ok ? std::string_view{} : "bytes, a *.model file or a tokenizer.json";
}

}  // namespace

std::vector<KeyRow> data_rows() {
  return {
      {.path = "data.train",
       .kind = KeyKind::kSources,
       .field = TESSERA_JOB(data.train),
       .unset = "required",
       .meaning = "Token files to train on.",
       .foreign = {{"dataset", "nanoGPT, torchtitan"},
                   {"data_path", "Megatron"},
                   {"train_data_path", "Megatron"},
                   {"train_file", "Hugging Face"},
                   {"dataset_path", "torchtitan"},
                   {"dataset_name", "Hugging Face"}}},
      {.path = "data.train[].path",
       .kind = KeyKind::kText,
       .field = TESSERA_FIELD(DataSource, path),
       .unset = "required",
       .meaning = "A file, or a glob of files."},
      {.path = "data.train[].weight",
       .kind = KeyKind::kNumber,
       .field = TESSERA_FIELD(DataSource, weight),
       .range = {0, kMaxFactor, true},
       .meaning = "How often an epoch visits each of the source's windows; 1 is once."},
      {.path = "data.validation",
       .kind = KeyKind::kTexts,
       .field = TESSERA_JOB(data.validation),
       .unset = "none",
       .meaning = "Token files to evaluate on. Refused where run.evaluate_every is not set; 0 is never.",
       .foreign = {{"valid_data_path", "Megatron"},
                   {"validation_file", "Hugging Face"},
                   {"eval_dataset", "Hugging Face"}}},
      {.path = "data.tokenizer",
       .kind = KeyKind::kText,
       .field = TESSERA_JOB(data.tokenizer),
       .unset = "none",
       .meaning = "What turns text into tokens and back; needed only where text is read or written.",
       .foreign = {{"tokenizer_name", "Hugging Face"},
                   {"tokenizer_model", "Megatron"},
                   {"tokenizer_path", "torchtitan"},
                   {"hf_assets_path", "torchtitan"}},
       .accepts = accept_tokenizer},
      {.path = "data.shuffle",
       .kind = KeyKind::kBool,
       .field = TESSERA_JOB(data.shuffle),
       .meaning =
           "Visits the windows of an epoch in an order drawn from the seed; false keeps the order of the files."},
      {.path = "data.document_separator",
       .kind = KeyKind::kAnything,
       .meaning = "The token between documents.",
       .later = true},
  };
}

std::vector<KeyRow> batch_rows() {
  return {
      {.path = "batch.global_batch_size",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(batch.global_batch_size),
       .range = {1, kMaxBatch},
       .unset = "required",
       .meaning = "Sequences of one update over all ranks: lanes × accumulation × micro_batch_size.",
       .unit = "sequences",
       .foreign =
           {
               {"gradient_accumulation_steps", "nanoGPT, Hugging Face"},
               {"train_batch_size", "DeepSpeed"},
           }},
      {.path = "batch.micro_batch_size",
       .kind = KeyKind::kInteger,
       .field = TESSERA_JOB(batch.micro_batch_size),
       .range = {1, kMaxBatch},
       .unset = "required",
       .meaning = "Sequences that pass the model together on one rank.",
       .unit = "sequences",
       .foreign =
           {
               {"batch_size", "nanoGPT"},
               {"per_device_train_batch_size", "Hugging Face"},
               {"per_gpu_train_batch_size", "Hugging Face"},
               {"local_batch_size", "torchtitan"},
               {"train_micro_batch_size_per_gpu", "DeepSpeed"},
           }},
  };
}

}  // namespace tessera::config
