"""The tasks of the published datasets, as data."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import MissingFile
from pytest_intercode.suites.catalogue import data_folder, dataset_names, dataset_tasks


@pytest.mark.parametrize("name", dataset_names())
def test_tasks_survive_json_and_pickle(data: Path, name: str) -> None:
    try:
        tasks = dataset_tasks(name, data_folder(data, "INTERCODE_DATA"), name)
    except MissingFile as missing:
        pytest.skip(str(missing))
    for task in tasks:
        for copy in (task_from_json(task_to_json(task)), pickle.loads(pickle.dumps(task))):
            assert copy == task
            assert repr(copy) == repr(task)
