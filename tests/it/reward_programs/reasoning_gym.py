# What `reasoning_gym` has of the real package (0.1.25): two datasets, one of which repeats itself.
class Dataset:
    def __init__(self, name, size, terms=2):
        self.name, self.size, self.terms = name, size, terms
    def __getitem__(self, index):
        number = index // 2 if self.name == "twice" else index
        question = "+".join([str(number)] * self.terms) + "?"
        return {"question": self.name + question, "answer": str(number * self.terms), "metadata": {"number": (number,)}}
    def score_answer(self, answer, entry):
        return 1.0 if answer == entry["answer"] else 0.25 if answer else 0.0
def create_dataset(name, seed, size, **settings):
    if name not in ("once", "twice"):
        raise ValueError(f"Dataset '{name}' not registered")
    return Dataset(name, size, **settings)
def get_score_answer_fn(name):
    return Dataset(name, 0).score_answer
