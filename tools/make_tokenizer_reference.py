#!/usr/bin/env python3
"""Token ids of Hugging Face's own tokenizers, for tests/train/json_tokenizer_test.cpp.

    python3 -m venv DIR && DIR/bin/pip install tokenizers
    DIR/bin/python tools/make_tokenizer_reference.py tests/data/tokenizers

Trains two small tokenizers on the project's documents, in the style of GPT-2 (tokenizer.json as its hub file spells it) and of Llama 3, and writes
FOLDER/gpt2/, FOLDER/llama3/ and FOLDER/reference.json: adversarial texts, and their ids under both and under changed copies of both ("variants":
JSON patches). Ids are those of encode(text, add_special_tokens=False).
"""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
ROOT = pathlib.Path(__file__).resolve().parent.parent

TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a  b   c    ", "Hello, world! The quick brown fox.",
    "tabs\tand\t\tmore\t \t end", "lines\r\n\r\n\r\nand\n\n\n  indented\n   \n\t\n", "trailing spaces   ", "trailing newline\n", "\n leading",
    "I'm he's they'll we've you'd isn't they're I'M HE'S THEY'LL WE'VE YOU'D ISN'T THEY'RE 'Sno 'lL 've'Re ''s 's's", "'ſ It'ſ 'ſs",
    "donʼt don’t don‘t ‛t", "' s 't' 'x 'r 'l 'v 're've'll", "1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 1e-9",
    "१२३४५६ ٠١٢٣٤ ⅣⅫ ½¾ ²³¹ ①②③④ 一二三", "año café cafe\u0301 naïve nai\u0308ve Å A\u030a ﬁ ﬂ Ａ１", "e\u0301\u0301\u0323 \u0301 leading mark",
    "日本語のテキスト。中文，标点！한국어 텍스트", "ภาษาไทยไม่มีช่องว่าง กำ", "العربية مع تشكيل: كِتَابٌ و١٢٣", "עברית \u200fRTL\u200e marks \u202eoverride\u202c",
    "हिन्दी क्षत्रिय தமிழ் বাংলা", "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ☕️ 😀😀", "\u00a0nbsp\u00a0\u00a0x \u2003em\u2009thin\u202fnarrow\u3000ideographic\u1680ogham\u205f",
    "\u2028line\u2029para\u0085next\u000bvt\u000cff", "\u180emongolian \u200bzero \u2060joiner\ufeffbom", "\ufeffstarts with a mark",
    "\x00\x01\x02nul\x00 \x1b[31m \x7f \x80\x9f", "\ue000private \uf8ff \U000f0000", "\u0378unassigned \U000e0fff \U0010ffff \ufffe \ufdd0",
    "𝐇𝐞𝐥𝐥𝐨 𝟙𝟚𝟛 𐍈 𓀀", "snake_case CamelCase kebab-case a.b.c http://x.y/z?q=1&r=2#f user@host", "if (a[i] != b->c) { return !x; } // ok\n\n\n#include <a>",
    "$100 €50 £20 ¥10 §1 ¶ © ® ™ … — – “quoted” «q»", "!!!???...---***___###", " !!! ??? \n... \r\n---\r\n\n", "x\n\n\n\ny", "x \n \n \n y", "x   \n", "   \n   x",
    "\t\tx\n\t\ty", "a  b\u00a0\u00a0c\u2003\u2003d", "Tessera Tessera internationalization internationalizations", "ĠhelloĊ Ġ ĉ Ā",
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext|", "<|endoftext |>", "<|ENDOFTEXT|>",
    "<|begin_of_text|>Hi<|end_of_text|>", "<|eot_id|> \n<|start_header_id|>user<|end_header_id|>\n\nHi there<|eot_id|>", "<|eot<|eot_id|>_id|>",
    "a [LEFT] b", "a\n\t [LEFT]b", "[LEFT]", "a [RIGHT] \n b", "[RIGHT]   ", "[BOTH]  [BOTH]", "x  [BOTH]  [LEFT]  [RIGHT]  [BOTH]  y", " word words word. sword word_ _word wordé",
    "word", "word word", "<tool>  <tools> <tool><tools>", "CAFÉ CAFE\u0301 CAF\u00c9\u0301", "[RIGHT]  next", "[RIGHT] \t",
    "a" * 300, "ab" * 200, " " * 200, " " * 200 + "x", "\n" * 100, "1" * 100, "é" * 100, "😀" * 50, "!" * 100, "aA1! " * 40, "the" * 100, "\u0301" * 40,
]


def fuzz(count):
    rng = random.Random(20240611)
    pieces = list("abcdeXYZ059.,!?'\"-_ \t\n\r") + ["  ", "\n\n", "\r\n", "'s", "'LL", "'Re", "the", " of", "123", "é", "e\u0301", "ß", "ſ", "日", "ا", "ก", "ི",
              "\u00a0", "\u2003", "\u3000", "\u200d", "\ufeff", "😀", "👩‍👧", "½", "٣", "①", "_", "<|endoftext|>", "<|eot_id|>", "[LEFT]", "[RIGHT]", "[BOTH]", "word",
              "\u0085", "\u2028", "\x00", "\U0001d7d9", "\u0378", "Ġ", "Tessera", "internationalization"]
    return ["".join(rng.choice(pieces) for _ in range(rng.randrange(1, 24))) for _ in range(count)]


def corpus():
    yield from TEXTS
    for path in sorted((ROOT / "docs").glob("*.md")):
        yield path.read_text(encoding="utf-8")


def trained(pre_tokenizer, vocab_size, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tokenizer.to_str())


def added(index, content, special=True, **flags):
    token = {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {**token, **flags}


def gpt2():
    """As the hub's file: no type of the model, empty affixes, merges as text, its special token inside the vocabulary."""
    file = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 1200, ["<|endoftext|>"])
    model = file["model"]
    file["added_tokens"] = [added(model["vocab"]["<|endoftext|>"], "<|endoftext|>")]
    file["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    file["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    file["model"] = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                     "vocab": model["vocab"], "merges": ["#version: 0.2"] + [" ".join(pair) for pair in model["merges"]]}
    return file


def llama3():
    """Words that merges do not reach, special tokens behind the vocabulary, a token before every text."""
    file = trained(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 1200, [])
    vocab = file["model"]["vocab"]
    for word in ["ĠTessera", "Tessera", "internationalization", "Ġinternationalization"]:
        if word not in vocab:
            vocab[word] = len(vocab)
    file["model"]["ignore_merges"] = True
    first = len(vocab)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
    file["added_tokens"] = [added(first + i, name) for i, name in enumerate(names)]
    more = [("[LEFT]", {"lstrip": True}), ("[RIGHT]", {"rstrip": True}), ("[BOTH]", {"lstrip": True, "rstrip": True}),
            ("word", {"single_word": True, "special": False}), ("<tool>", {"normalized": True, "special": False}),
            ("<tools>", {"special": False}), ("CAFÉ", {"normalized": True, "special": False})]
    for content, flags in more:
        file["added_tokens"].append({**added(first + len(file["added_tokens"]), content), **flags})
    file["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": names[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"SpecialToken": {"id": names[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": names[0], "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {names[0]: {"id": names[0], "ids": [first], "tokens": [names[0]]}}}]}
    return file


def replace(path, value):
    return {"op": "replace", "path": path, "value": value}


VARIANTS = {
    "gpt2": {"gpt2": []},
    "gpt2_prefix_space": {"gpt2": [replace("/pre_tokenizer/add_prefix_space", True)]},
    "llama3": {"llama3": []},
    "llama3_with_merges": {"llama3": [replace("/model/ignore_merges", False)]},
    "qwen2": {"llama3": [replace("/normalizer", {"type": "NFC"}), replace("/pre_tokenizer/pretokenizers/0/pattern/Regex", QWEN2)]},
}


def patched(file, patch):
    file = json.loads(json.dumps(file))
    for change in patch:
        *parents, last = change["path"].split("/")[1:]
        at = file
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = change["value"]
    return file


def main():
    folder = pathlib.Path(sys.argv[1])
    files = {"gpt2": gpt2(), "llama3": llama3()}
    for name, file in files.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    first = files["llama3"]["added_tokens"][0]["id"]
    (folder / "llama3" / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}) + "\n")
    (folder / "llama3" / "generation_config.json").write_text(json.dumps({"eos_token_id": [first + 1, first + 2]}) + "\n")
    texts = TEXTS + fuzz(250)
    reference = {"made_by": f"tokenizers {tokenizers.__version__}", "texts": texts, "variants": {}}
    for name, ((base, patch),) in ((name, variant.items()) for name, variant in VARIANTS.items()):
        tokenizer = Tokenizer.from_str(json.dumps(patched(files[base], patch)))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        reference["variants"][name] = {"of": base, "patch": patch, "ids": ids,
                                       "with_special_tokens": tokenizer.encode("Hi", add_special_tokens=True).ids}
        print(f"{name}: {len(texts)} texts, {sum(map(len, ids))} tokens")
    (folder / "reference.json").write_text(json.dumps(reference, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
