#!/usr/bin/env python3
"""Questions about a text, answered by a small BERT that Temper runs: tokeniser, encoder, and the words of the answer.

usage: examples/question_answering.py [TEXT QUESTION ...] [--steps 400] [--tune SECONDS]
needs: pip install torch, and temper

No trained weights are fetched. The model is trained here, on sentences that a small grammar makes: it can tell who lives
or works where, and since when, and nothing else. What it shows is the way from text to answer; a BERT of any size and
training goes the same way.
"""
import argparse, random, re, time
import numpy as np
import torch

import temper, temper.torch

TEXT = "Anna lives in Rome since May."
QUESTIONS = ["Where does Anna live?", "Who lives in Rome?", "Since when does Anna live in Rome?"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = "anna boris clara david emma felix greta henry ida jonas".split()
PLACES = "rome oslo cairo lima delhi tokyo paris bern accra quito".split()
MONTHS = "january february march april may june july august september october november december".split()
VERBS = {"lives": "live", "works": "work", "stays": "stay"}
LENGTH = 48  # tokens of question and text


class Tokeniser:
    """WordPiece: a word is the longest pieces of the vocabulary, from its start on. Unknown words end as letters."""

    def __init__(self):
        words = [*NAMES, *PLACES, *MONTHS, *VERBS, *VERBS.values(), *"who where when does in since . ?".split(),
                 *LETTERS, *("##" + letter for letter in LETTERS)]
        self.words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(words)]
        self.ids = {word: i for i, word in enumerate(self.words)}

    def pieces(self, word):
        start, found = 0, []
        while start < len(word):
            end = next((e for e in range(len(word), start, -1) if ("##" if start else "") + word[start:e] in self.ids), 0)
            if end == 0:
                return ["[UNK]"]
            found.append(("##" if start else "") + word[start:end])
            start = end
        return found

    def encode(self, question, text):
        """Token ids, which of the two texts each is of, and the place in `text` of the word that each belongs to."""
        tokens, kinds, spans = ["[CLS]"], [0], [None]
        for kind, part in enumerate((question, text)):
            for word in re.finditer(r"\w+|[^\w\s]", part):
                for piece in self.pieces(word.group().lower()):
                    tokens.append(piece)
                    kinds.append(kind)
                    spans.append(word.span() if kind == 1 else None)
            tokens.append("[SEP]")
            kinds.append(kind)
            spans.append(None)
        if len(tokens) > LENGTH:
            raise SystemExit(f"question and text have {len(tokens)} tokens; the model takes {LENGTH}")
        rest = LENGTH - len(tokens)
        return [self.ids[t] for t in tokens] + [0] * rest, kinds + [0] * rest, spans + [None] * rest


class Bert(torch.nn.Module):
    """For each token: how likely the answer starts there, and ends there."""

    def __init__(self, vocabulary, width=96, layers=2):
        super().__init__()
        self.word, self.kind = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(2, width)
        self.place = torch.nn.Embedding(LENGTH, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, layers, torch.nn.LayerNorm(width), enable_nested_tensor=False)
        self.ends = torch.nn.Linear(width, 2)

    def forward(self, ids, kinds):
        x = self.word(ids) + self.kind(kinds) + self.place.weight
        return self.ends(self.encoder(x)).transpose(1, 2)


def example(rng):
    """A text, a question, and the place of the answer in the text."""
    def word(known):  # or one that nobody knows
        return rng.choice(known) if rng.random() < 0.5 else "".join(rng.choices(LETTERS, k=rng.randint(3, 6)))

    name, place, month, verb = word(NAMES), word(PLACES), rng.choice(MONTHS), rng.choice(list(VERBS))
    text = rng.choice([f"{name} {verb} in {place} since {month} .", f"since {month} {name} {verb} in {place} ."])
    said, question = rng.choice([(name, f"who {verb} in {place} ?"), (place, f"where does {name} {VERBS[verb]} ?"),
                                 (month, f"since when does {name} {VERBS[verb]} in {place} ?")])
    start = f" {text}".index(f" {said} ")
    return question, text, (start, start + len(said))


def batch(rng, tokeniser, size):
    ids, kinds, at = [], [], []
    for _ in range(size):
        question, text, span = example(rng)
        i, k, spans = tokeniser.encode(question, text)
        inside = [t for t, s in enumerate(spans) if s == span]
        ids.append(i), kinds.append(k), at.append([inside[0], inside[-1]])
    return torch.tensor(ids), torch.tensor(kinds), torch.tensor(at)


def train(model, tokeniser, steps):
    rng = random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=max(steps, 2))
    right = 0.0
    for step in range(steps):
        ids, kinds, at = batch(rng, tokeniser, 64)
        ends = model(ids, kinds)
        loss = torch.nn.functional.cross_entropy(ends.flatten(0, 1), at.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        right = 0.95 * right + 0.05 * (ends.argmax(2) == at).all(1).float().mean().item()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}, {100 * right:.0f} % right", flush=True)
    return model.eval()


def answer(model, tokeniser, question, text):
    ids, kinds, spans = tokeniser.encode(question, text)
    scores = model.run({"ids": np.array([ids]), "kinds": np.array([kinds])})
    starts, ends = next(iter(scores.values()))[0]
    of_text = [t for t, span in enumerate(spans) if span]
    start, end = max(((s, e) for s in of_text for e in of_text if s <= e < s + 8), key=lambda p: starts[p[0]] + ends[p[1]])
    return text[spans[start][0]:spans[end][1]]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("text", nargs="?", default=TEXT)
    ap.add_argument("questions", nargs="*", default=QUESTIONS, metavar="question")
    ap.add_argument("--steps", type=int, default=400, help="of training")
    ap.add_argument("--tune", type=float, default=0, metavar="SECONDS")
    a = ap.parse_args()
    torch.manual_seed(1)
    tokeniser = Tokeniser()
    module = train(Bert(len(tokeniser.words)), tokeniser, a.steps)
    ids, kinds, _ = tokeniser.encode(a.questions[0], a.text)
    file = temper.torch.export(module, {"ids": torch.tensor([ids]), "kinds": torch.tensor([kinds])})
    if a.tune > 0:
        print(temper.tune(file, time_budget=a.tune))
    model = temper.compile(file)
    for question in a.questions:
        start = time.perf_counter()
        said = answer(model, tokeniser, question, a.text)
        print(f"{question} {said} ({1e3 * (time.perf_counter() - start):.1f} ms)")


if __name__ == "__main__":
    main()
