"""Graphs from CSV and Parquet files, against dictionaries of Python."""

import gzip
from itertools import product, zip_longest

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from commands import called, complaints, fails, run

NAMES = st.one_of(
    st.lists(st.integers(-50, 10**12), min_size=1, max_size=8, unique=True),
    st.lists(
        st.text("abÄ ,\"'0", min_size=1, max_size=4).map(lambda text: f"n{text}z"), min_size=1, unique=True
    ),
)


@st.composite
def networks(draw):
    """Names of nodes, edges between them with weights, features, and labels of some."""
    names = draw(NAMES)
    name = st.sampled_from(names)
    edges = draw(st.lists(st.tuples(name, name, st.sampled_from([0.5, 1.0, 2.0])), max_size=12))
    features = {each: draw(st.tuples(st.integers(-5, 5), st.floats(-1, 1, width=16))) for each in names}
    labels = draw(st.dictionaries(name, st.sampled_from(["ant", "bee", "cat"]), min_size=1))
    return names, edges, features, labels, draw(st.booleans())


@pytest.mark.filterwarnings("ignore:.*another weight there than back", "ignore:.*repeats? an edge")
@pytest.mark.filterwarnings("ignore:.*and no edges")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@given(network=networks())
def test_every_number_stays_with_its_name(tmp_path_factory, suffix, network):
    names, edges, features, labels, undirected = network
    place = tmp_path_factory.mktemp("tables")
    tables = {
        "edges": pd.DataFrame(edges, columns=["source", "target", "weight"]),
        "features": pd.DataFrame([(name, *features[name]) for name in names], columns=["id", "a", "b"]),
        "labels": pd.DataFrame(labels.items(), columns=["node", "label"]),
    }
    if not edges:
        tables["edges"]["source"] = tables["edges"]["target"] = pd.Series([], dtype=type(names[0]))
    files = {}
    for kind, table in tables.items():
        files[kind] = place / f"{kind}{suffix}"
        (table.to_csv if suffix == ".csv" else table.to_parquet)(files[kind], index=False)
    graph = lmc.read_tables(**files, undirected=undirected)
    ids = list(range(len(names))) if graph.id is None else graph.id.tolist()
    assert ids == names
    wanted, weights = np.zeros((len(names), len(names))), {}
    for source, target, weight in edges:
        weights.setdefault((names.index(target), names.index(source)), []).append(weight)
    for i, j in product(range(len(names)), repeat=2):
        there, back = weights.get((i, j), []), weights.get((j, i), []) if undirected else []
        wanted[i, j] = sum(max(pair) for pair in zip_longest(there, back, fillvalue=0.0))
    assert np.array_equal(graph.adjacency.to_dense().numpy(), wanted)
    assert graph.x.tolist() == [list(features[name]) for name in names]
    assert graph.class_names == tuple(sorted(set(labels.values())))
    found = [None if y == -1 else graph.class_names[y] for y in graph.y.tolist()]
    assert found == [labels.get(name) for name in names]
    masks = torch.stack([graph.train_mask, graph.val_mask, graph.test_mask])
    assert masks.sum(0).tolist() == [int(name in labels) for name in names]
    assert bool(graph.train_mask.any())


def write(folder, **texts):
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name}.csv"
        files[name].write_text(text)
    return files


@pytest.mark.parametrize(
    "text",
    [
        "0 1\n1 2\n",
        "# a list of SNAP\n# FromNodeId ToNodeId\n0\t1\n1\t2\n",
        "dst;src;time\n1;0;5\n2;1;6\n",
        "a,b\n0,1\n1,2",
        "\ufefffrom node,to node\n0,1\n1,2\n",
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out")
def test_edge_lists_as_they_come(tmp_path, text):
    graph = lmc.read_tables(**write(tmp_path, edges=text))
    assert graph.to_pyg().edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.id is None
    (tmp_path / "edges.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert lmc.read_tables(tmp_path / "edges.csv.gz").adjacency.equal(graph.adjacency)


def test_a_column_that_is_not_read_is_named(tmp_path):
    files = write(tmp_path, edges="source,target,time\n0,1,5\n")
    with pytest.warns(UserWarning, match=r"column 'time' is left out; read are source, target"):
        lmc.read_tables(**files)


def test_labels_that_are_not_read_are_named(tmp_path):
    """Of several columns that could be the label the first is, and a column split is read too."""
    files = write(tmp_path, edges="0,1\n", labels="id,y,Class,age,split\n0,1,5,30,train\n1,0,6,40,test\n")
    line = "labels.csv: columns 'Class', 'age' are left out; read are id, y, split"
    with pytest.warns(UserWarning, match=line):
        graph = lmc.read_tables(**files)
    assert (graph.y.tolist(), graph.num_classes) == ([1, 0], 2)
    done = called("import", files["edges"], "--labels", files["labels"], "--out", tmp_path / "g")
    assert (done.returncode, len(complaints(done))) == (0, 1)
    assert complaints(done)[0].endswith(line)
    many = ",".join(f"c{place}" for place in range(9))
    files = write(tmp_path, edges="0,1\n", labels=f"id,label,{many}\n0,0{',0' * 9}\n")
    with pytest.warns(UserWarning, match="columns 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more are left out"):
        lmc.read_tables(**files)


def test_a_label_among_the_features_is_named(tmp_path):
    files = write(
        tmp_path,
        edges="source,target\n0,1\n",
        features="id,a,label\n0,5,0\n1,6,1\n",
        labels="id,label\n0,0\n1,1\n",
    )
    with pytest.warns(UserWarning, match=r"features.csv: 'label' is read as a feature; leave it out if"):
        assert lmc.read_tables(**files).feature_names == ("a", "label")


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_text_has_classes_and_nothing_else(tmp_path, task):
    """The first label that is no number is named: it may be a slip of the pen."""
    files = write(tmp_path, edges="0,1\n1,2\n", labels="id,label\n0,1.5\n1,\n2,n/k\n")
    flags = ["--labels", files["labels"], "--task", task, "--out", tmp_path / "g"]
    line = fails(2, "import", files["edges"], *flags, through=called)
    assert line == f"lmc: {files['labels']}: column 'label' holds text, in row 3 'n/k': {task} wants numbers"
    assert not (tmp_path / "g").exists()


def test_ids_keep_their_zeros(tmp_path):
    graph = lmc.read_tables(**write(tmp_path, edges="007,7\n7,8\n"))
    assert sorted(graph.id.tolist()) == ["007", "7", "8"]


def test_kinds_of_labels(tmp_path):
    edges, labels = "0,1\n1,2\n2,3\n", {}
    for name, text in {
        "integers": "id,label\n0,1\n3,0\n1,\n",
        "yes and no": "id,y\n0,true\n1,false\n",
        "reals": "id,target\n0,0.5\n2,-1\n",
        "several": "id,a,b\n0,1,0\n1,0,0\n2,1,1\n",
        "split": "id,label,split\n0,0,train\n1,1,valid\n2,1,test\n3,0,\n",
    }.items():
        labels[name] = lmc.read_tables(**write(tmp_path, edges=edges, labels=text))
    assert labels["integers"].y.tolist() == [1, -1, -1, 0]
    assert labels["yes and no"].y.tolist() == [1, 0, -1, -1]
    assert (labels["reals"].task, labels["reals"].y.nan_to_num(9).tolist()) == ("regression", [0.5, 9, -1, 9])
    assert int((labels["reals"].train_mask | labels["reals"].val_mask).sum()) == 2
    assert (labels["several"].task, labels["several"].class_names) == ("multilabel", ("a", "b"))
    split = labels["split"]
    masks = [
        mask.nonzero().flatten().tolist() for mask in (split.train_mask, split.val_mask, split.test_mask)
    ]
    assert masks == [[0], [1], [2]]


def test_codes_are_the_names_of_classes(tmp_path):
    files = write(tmp_path, edges="source,target\na,b\nb,c\nc,d\n", labels="id,y\na,2095\nb,99999\nc,1115\n")
    with pytest.warns(UserWarning, match="has 3 codes \\(1115, 2095, 99999\\) for classes"):
        graph = lmc.read_tables(**files)
    assert (graph.num_classes, graph.class_names) == (3, ("1115", "2095", "99999"))
    assert graph.y.tolist() == [1, 2, 0, -1]
    files = write(tmp_path, edges="source,target\na,b\nb,c\n", labels="id,y\na,20.0\nb,\nc,10.0\n")
    with pytest.warns(UserWarning, match="has 2 codes \\(10, 20\\) for classes"):
        graph = lmc.read_tables(**files, task="multiclass")
    assert (graph.y.tolist(), graph.class_names) == ([1, -1, 0], ("10", "20"))
    files = write(tmp_path, edges="source,target\na,b\nb,c\n", labels="id,y\na,3\nb,1\nc,2\n")
    with pytest.warns(UserWarning, match="has 3 codes \\(1, 2, 3\\) for classes"):
        graph = lmc.read_tables(**files)
    assert (graph.y.tolist(), graph.class_names) == ([2, 0, 1], ("1", "2", "3"))
    files = write(tmp_path, edges="source,target\na,b\nb,c\n", labels="id,y\na,1\nb,0\nc,2\n")
    graph = lmc.read_tables(**files)
    assert (graph.y.tolist(), graph.class_names) == ([1, 0, 2], None)


def test_nodes_that_only_a_split_knows(tmp_path):
    files = write(tmp_path, edges="0,1\n", splits="id,split\n0,train\n2,test\n")
    with pytest.warns(UserWarning, match="has 1 id that no edge has, such as 2"):
        graph = lmc.read_tables(**files)
    assert (graph.num_nodes, graph.num_classes, graph.id) == (3, 0, None)


def test_ids_that_no_edge_has_are_counted(tmp_path):
    edges, labels = tmp_path / "edges.csv", tmp_path / "labels.csv"
    edges.write_text("source,target\na,b\nb,c\n")
    labels.write_text("id,label\na,0\ny,1\nz,1\n")
    with pytest.warns(UserWarning, match=r"labels.csv: has 2 ids that no edge has, such as 'y': a node"):
        assert lmc.read_tables(edges, labels=labels).id.tolist() == ["a", "b", "c", "y", "z"]


def test_vectors_in_one_column(tmp_path):
    files = write(tmp_path, edges="source,target\na,b\n")
    vectors = pd.DataFrame({"id": ["a", "b"], "embedding": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "age": [7, 8]})
    vectors.to_parquet(tmp_path / "x.parquet")
    assert lmc.read_tables(**files, features=tmp_path / "x.parquet").x.tolist() == [
        [1, 2, 3, 7],
        [4, 5, 6, 8],
    ]


WRONG = {
    "edges.csv: column 'target', row 2 is 'zoe': no node has this id": {
        "edges": "source,target\na,b\na,zoe\n",
        "features": "id,x\na,1\nb,2\n",
    },
    "labels.csv: column 'id', row 1 is 9: no node": {
        "features": "id,x\n0,1\n1,2\n",
        "labels": "id,label\n9,0\n",
    },
    "features.csv: id 1 is there twice": {"features": "id,x\n1,1\n1,2\n0,0\n"},
    "features.csv: column 'x', row 2 is empty": {"features": "id,x\n0,1\n1,\n"},
    "features.csv: column 'x' holds text, in row 1 'red': must be numbers": {
        "features": "id,x\n0,red\n1,blue\n"
    },
    "features.csv: has no column besides id": {"features": "id\n0\n1\n"},
    "features.csv: column 'id', row 2 is empty: every row needs an id": {"features": "id,x\n0,1\n,2\n"},
    "splits.csv: column 'split', row 1 is 'dev set': must be one of train, val, test": {
        "splits": "id,split\n0,dev set\n"
    },
    "edges.csv: column 'edge_type' holds text: types must be integers from 0; numpy.unique(names, return_": {
        "edges": "source,target,edge_type\n0,1,cites\n1,0,writes\n"
    },
    "edges.csv: has 1 column: an edge has a source and a target": {"edges": "source\n0\n"},
    "edges.csv: column 'a' is there twice": {"edges": "a,a\n0,1\n"},
    "edges.csv: not a table that can be read (it has no lines)": {"edges": ""},
    "edges.csv: not a table that can be read (CSV parse error": {"edges": "a,b\n0,1\n2\n"},
    "edges.csv: a graph needs a node or more": {"edges": "source,target\n"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_names_file_column_and_row(tmp_path, message):
    files = write(tmp_path, **({"edges": "source,target\n0,1\n"} | WRONG[message]))
    with pytest.raises(lmc.DatasetError) as caught:
        lmc.read_tables(**files)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_one_line(tmp_path):
    line = fails(2, "import", tmp_path / "no.csv", "--out", tmp_path / "g", through=called)
    assert line == f"lmc: {tmp_path / 'no.csv'}: not a table that can be read (No such file or directory)"


@pytest.mark.process
def test_from_tables_to_predictions_by_name(tmp_path, monkeypatch):
    """What comes out has the names that went in, also for a graph without labels."""
    rng, people = np.random.default_rng(0), [f"person {i}" for i in range(80)]
    team = rng.integers(0, 2, 80)
    pairs = [
        (a, b) for a in range(80) for b in range(a) if rng.random() < (0.2 if team[a] == team[b] else 0.01)
    ]
    edges = pd.DataFrame([(people[a], people[b]) for a, b in pairs], columns=["source", "target"])
    edges.to_csv(tmp_path / "edges.csv", index=False)
    x = pd.DataFrame(rng.normal(size=(80, 4)) + team[:, None], columns=list("abcd"))
    x.insert(0, "id", people)
    x.to_parquet(tmp_path / "x.parquet", index=False)
    labels = pd.DataFrame({"id": people, "label": np.array(["red", "blue"])[team]})
    labels[:60].to_csv(tmp_path / "y.csv", index=False)
    features = ["--features", "x.parquet", "--undirected"]
    steps = [
        ["import", "edges.csv", *features, "--labels", "y.csv", "--out", "g"],
        ["import", "edges.csv", *features, "--out", "new"],
        ["train", "--data", "g", "--parts", 4, "--epochs", 20, "--hidden", 8, "--out", "run", "--quiet"],
        ["predict", "run", "--nodes", "ids.txt", "--out", "p.csv"],
        ["predict", "run", "--data", "new", "--nodes", "ids.txt", "--out", "new.csv"],
    ]
    wanted = people[79:55:-2]
    (tmp_path / "ids.txt").write_text("\n".join(wanted))
    monkeypatch.chdir(tmp_path)
    for step, through in zip(steps, [run, *[called] * 4], strict=True):
        done = through(*step)
        assert (done.returncode, complaints(done)) == (0, []), done
    found, new = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(tmp_path / "new.csv")
    assert found["id"].tolist() == new["id"].tolist() == wanted
    right = labels.set_index("id").loc[wanted, "label"].tolist()
    assert (found["class_name"] == right).mean() > 0.8
    assert found["class_name"].tolist() == new["class_name"].tolist()
    assert np.allclose(found[["p_blue", "p_red"]], new[["p_blue", "p_red"]])
    assert np.allclose(found[["p_blue", "p_red"]].sum(axis=1), 1)
    assert (found["class_name"] == np.where(found["p_red"] > 0.5, "red", "blue")).all()


def test_a_graph_is_not_overwritten_and_one_without_labels_is_for_predictions(tmp_path):
    edges = write(tmp_path, edges="source,target\na,b\nb,c\n")["edges"]
    done = called("import", edges, "--out", tmp_path / "g")
    assert f"`lmc predict RUN --data {tmp_path / 'g'}` predicts it" in done.stdout
    assert "holds a graph already" in fails(2, "import", edges, "--out", tmp_path / "g", through=called)


LABELS = "id,label\na,0\nb,1\nc,0\n"
FLOATS = "id,label\na,0.0\nb,1.0\nc,2.0\n"
SPLITS = "id,split\na,train\nb,test\nc,\nd,train\n"


@pytest.mark.parametrize(
    ("tables", "said", "printed"),
    [
        (
            {"labels": LABELS},
            "",
            "--features were not given; `lmc train --data g --features structure` trains",
        ),
        (
            {"labels": FLOATS},
            "y.csv: column 'label': whole numbers with a decimal point are taken as targets of a regression; "
            "--task multiclass (task='multiclass') makes them classes, --task regression keeps them",
            "1 target",
        ),
        (
            {"labels": LABELS, "splits": SPLITS},
            "s.csv: 1 of 3 nodes have no label, and are left out of the split",
            "2 classes",
        ),
    ],
)
def test_what_an_import_says(tmp_path, monkeypatch, tables, said, printed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    files, flags = {"labels": "y.csv", "splits": "s.csv"}, []
    for kind, text in tables.items():
        (tmp_path / files[kind]).write_text(text)
        flags += [f"--{kind}", files[kind]]
    done = called("import", "edges.csv", *flags, "--out", "g")
    assert done.returncode == 0, done.stderr
    assert complaints(done) == ([f"lmc: warning: {said}"] if said else [])
    assert printed in done.stdout
    one_way = "messages go from source to target alone; --undirected makes every edge go both ways"
    assert one_way in done.stdout
    assert one_way not in called("import", "edges.csv", *flags, "--undirected", "--out", "u").stdout


@pytest.mark.parametrize("command", [["inspect"], ["train", "--quiet", "--data"]])
def test_a_table_in_the_place_of_a_graph(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    line = fails(2, *command, "edges.csv", through=called)
    assert line.startswith("lmc: edges.csv: a table, not a graph; `lmc import edges.csv --out FOLDER`, or")


@pytest.mark.parametrize(
    ("name", "text", "task", "message"),
    [
        (
            "features",
            "id,u,v\na,1,2\nb,1,inf\nc,1,2\n",
            None,
            "column 'v', row 2 is inf: numbers must",
        ),
        ("labels", "id,label\nc,1\nb,-3\na,0\n", None, "column 'label', row 2 is -3: classes must be in"),
        ("labels", "id,y\nc,1.5\nb,1\n", "multiclass", "column 'y', row 1 is 1.5: classes must be whole"),
        ("labels", "id,u,v\nc,1.5,2\nb,1,inf\na,1,1\n", None, "column 'v', row 2 is inf: targets in a mask"),
        ("labels", "id,u,v\nc,1,0\nb,2,0\na,1,1\n", "multilabel", "column 'u', row 2 is 2.0: multi-label"),
        ("labels", "id,u,v\nc,1,0\n", "multiclass", "labels are in 2 columns, u, v; multiclass wants one"),
        (
            "edges",
            "source,target,edge_type\na,b,0\nb,c,-4\n",
            None,
            "column 'edge_type' has -4: types",
        ),
    ],
)
def test_what_is_wrong_in_a_table_names_its_file_and_column(tmp_path, name, text, task, message):
    files = {"edges": tmp_path / "edges.csv", name: tmp_path / f"{name}.csv"}
    files["edges"].write_text("source,target\na,b\nb,c\n")
    files[name].write_text(text)
    with pytest.raises(lmc.DatasetError) as caught:
        lmc.read_tables(**files, task=task)
    assert str(caught.value).startswith(f"{files[name]}: {message}")
