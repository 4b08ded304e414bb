"""Standalone: no client shares anything. Each trains its own model for as many steps as in a federation.

    theta_i <- theta_i trained on client i's data

The baseline of collaboration: the row "Standalone" of the paper's Table 2 is its best accuracy.
"""

from dataclasses import dataclass

from fedsac.methods.base import Assignment, Method, State, Task, Updates


@dataclass(frozen=True)
class Standalone(Method):
    def start(self, task: Task) -> State:
        return {"models": task.initial.expand(len(task.clients), -1)}

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(state["models"], task.everything)

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        models = state["models"].clone()
        models[updates.who] = updates.params
        return {"models": models}
