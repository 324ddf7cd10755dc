"""Runs: tasks, where they run, and the folders that keep their outcomes.

A task is a frozen dataclass whose fields decide its outcome::

    @dataclasses.dataclass(frozen=True)
    class Norm(tasks.Task):
        order: int

        def run(self, x: Head) -> float:
            return float(np.linalg.norm(x.Q, self.order))

A list of tasks, perhaps a generator, runs here, in processes (``jobs``) or on a Dask cluster
(``scheduler``); the outcomes are the same bits everywhere and come as tasks finish::

    for task, outcome in engines.stream([Norm(1), Norm(2)], [head], jobs=2):
        print(task.order, outcome)

Big objects that several tasks need are ``shared``: a worker gets each of them once, and ``run``
gets the one at index ``task.place``. `engines.results` returns the outcomes in the order of the
tasks, and takes those that a folder keeps under their `Task.key` from there.

Modules: `tasks`, `engines` (serial, processes, Dask, and the one loop), `store`, `output_files`
(files written whole, and the record of an output folder), `threads` (of one process), `seeds`.
"""
