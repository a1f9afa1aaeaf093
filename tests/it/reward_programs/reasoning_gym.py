# What `reasoning_gym` has of the real package (0.1.25): two datasets, one of which repeats itself. It prints, and a scorer raises.
print("loaded")
class factory:
    DATASETS = {"once": (), "twice": ()}
class Dataset:
    def __init__(self, name, size, terms=2, part=0.25):
        self.name, self.size, self.terms, self.part = name, size, terms, part
    def __getitem__(self, index):
        number = index // 2 if self.name == "twice" else index
        question = "+".join([str(number)] * self.terms) + "?"
        return {"question": self.name + question, "answer": str(number * self.terms), "metadata": {"number": (number,)}}
    def score_answer(self, answer, entry):
        if answer == "1e999":
            raise OverflowError
        return 1.0 if answer == entry["answer"] else self.part if answer else 0.0
def create_dataset(name, seed=0, size=500, **settings):
    return Dataset(name, size, **settings)
