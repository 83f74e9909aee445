"""Tables as people and programs write them: nothing is lost, or becomes a class or a node, without a word."""

import pandas as pd
import pytest
import torch

import lmc
from commands import called, complaints, fails

NAMES = ("ann", "bob", "eve")
EDGES = "source,target\nann,bob\nbob,eve\neve,ann\n"


@pytest.fixture
def read(tmp_path):
    """A graph from the texts of its files."""

    def graph(task=None, **texts):
        files = {name: tmp_path / f"{name}.csv" for name in {"edges": EDGES} | texts}
        for name, file in files.items():
            file.write_text(texts.get(name, EDGES))
        return lmc.read_tables(**files, task=task)

    return graph


def labels_of(values):
    return "id,label\n" + "".join(f"{name},{value}\n" for name, value in zip(NAMES, values, strict=False))


# -- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "y", "names"),
    [
        (["01234", "20000", "00123"], [1, 2, 0], ("00123", "01234", "20000")),
        (["0", "00", "-1"], [0, 1, -1], ("0", "00")),
        (["0x10", "2", "2"], [0, 1, 1], ("0x10", "2")),
        ([" red", "red ", "blue"], [1, 1, 0], ("blue", "red")),
        (["TRUE", "", "FALSE"], [1, -1, 0], ("FALSE", "TRUE")),
        (["2020-01-02", "2020-01-01", "2020-01-02"], [1, 0, 1], ("2020-01-01", "2020-01-02")),
        (["0", "1", "-1"], [0, 1, -1], None),
        (["true", "False", ""], [1, 0, -1], ("False", "true")),
    ],
)
def test_labels_are_classes_as_they_are_written(read, values, y, names):
    graph = read(labels=labels_of(values))
    assert (graph.y.tolist(), graph.class_names) == (y, names)


@pytest.mark.parametrize("values", [["0", "0.5", "-1"], ["007.5", "0.5", "1"], ["00", "-02", "1.5"]])
def test_what_has_a_point_is_a_number(read, values):
    graph = read(labels=labels_of(values))
    assert (graph.task, graph.y.tolist()) == ("regression", [float(value) for value in values])


def test_a_regression_has_numbers_whatever_their_zeros(read):
    assert read(task="regression", labels=labels_of(["007", "10", "-1"])).y.tolist() == [7, 10, -1]
    graph = read(task="regression", labels=labels_of(["7", "-1"]))  # eve has none, and is not -1
    assert (graph.y[:2].tolist(), graph.y.isnan().tolist()) == ([7, -1], [False, False, True])


def test_text_in_parquet_stays_text(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    pd.DataFrame({"id": ["ann", "bob", "eve"], "label": ["1", "2", None]}).to_parquet(tmp_path / "y.parquet")
    graph = lmc.read_tables(tmp_path / "edges.csv", labels=tmp_path / "y.parquet")
    assert (graph.y.tolist(), graph.class_names) == ([0, 1, -1], ("1", "2"))


def test_what_parquet_knows_of_labels(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    given, file = pd.DataFrame({"id": ["ann", "bob", "eve"]}), tmp_path / "y.parquet"
    given.assign(label=[True, False, True]).to_parquet(file)
    graph = lmc.read_tables(tmp_path / "edges.csv", labels=file)
    assert (graph.y.tolist(), graph.class_names) == ([1, 0, 1], ("false", "true"))
    given.assign(label=pd.Timestamp("2020-01-01")).to_parquet(file)
    with pytest.raises(lmc.DatasetError, match="column 'label' holds timestamp"):
        lmc.read_tables(tmp_path / "edges.csv", labels=file)


@pytest.mark.parametrize("word", ["NA", "N/A", "nan", "NaN", "null", "NULL", "None", "<NA>"])
def test_a_word_for_nothing_is_no_class_and_is_counted(read, word):
    line = rf"labels.csv: column 'label' has 2 labels such as '{word}': unlabelled; a class that is called so"
    with pytest.warns(UserWarning, match=line):
        graph = read(labels=labels_of([word, "red", word]))
    assert (graph.y.tolist(), graph.class_names, int(graph.train_mask.sum())) == ([-1, 0, -1], ("red",), 1)
    with pytest.warns(UserWarning, match="has 1 label such as"):
        graph = read(labels=labels_of(["1", word, "0"]))
    assert (graph.y.tolist(), graph.class_names) == ([1, -1, 0], None)
    with pytest.warns(UserWarning, match="has 1 label such as"):
        graph = read(task="regression", labels=labels_of(["1", word, "0"]))
    assert graph.y.isnan().tolist() == [False, True, False]
    assert not read(splits=f"id,split\nann,train\nbob,{word}\n").train_mask[1]


def test_a_word_for_nothing_is_an_id_where_a_name_may_be_so(read):
    assert read(edges="source,target\nNA,None\n").id.tolist() == ["NA", "None"]
    with pytest.raises(lmc.DatasetError, match="column 'target', row 1 is empty: every row needs an id"):
        read(edges="source,target\na,null\n")


def test_decimal_commas_are_named(read):
    line = "column 'label' holds text, in row 1 '0,5', with a decimal comma: so labels are taken as names"
    with pytest.warns(UserWarning, match=line):
        read(labels="id;label\nann;0,5\nbob;1,5\n")
    with pytest.raises(lmc.DatasetError, match="in row 2 '0,5', with a decimal comma: must be numbers"):
        read(features="id;x\nann;1\nbob;0,5\neve;1\n")


# -- a file without a line of names ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (
            {"edges": "ann,bob\nbob,eve\neve,ann\n"},
            "edges.csv: its first line, ann,bob, is taken as names of",
        ),
        (
            {"edges": "1,bob\nbob,2\n"},
            "edges.csv: its first line, 1,bob, .* put a line source,target above it",
        ),
        (
            {"features": "ann,1,2\nbob,2,3\neve,3,4\n"},
            "features.csv: its first line, ann,1,2, .* line id,... above",
        ),
        ({"labels": "ann,red\nbob,blue\n"}, "labels.csv: its first line, ann,red, .* 'ann' is an id"),
        ({"splits": "ann,train\nbob,test\n"}, "splits.csv: its first line, ann,train"),
        (
            {"edges": "1,2\n2,3\n", "labels": "1,red\n2,blue\n"},
            "labels.csv: its first line, 1,red, .* '1' is an id",
        ),
    ],
)
def test_a_row_in_the_place_of_names_is_refused(read, texts, line):
    with pytest.raises(lmc.DatasetError, match=line):
        read(**texts)


def test_one_id_in_the_place_of_names_is_said(read):
    """It may be a coincidence: somebody may be called as the column is."""
    with pytest.warns(
        UserWarning, match="its first line, ann,bob, .* and 'bob' is an id: put a line source,ta"
    ):
        assert read(edges="ann,bob\nbob,eve\n").num_edges == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "texts",
    [
        {"edges": "source,target\nsource,target\nann,source\n"},
        {"edges": "who,whom\nann,bob\nbob,eve\n"},
        {"edges": "0,1\n1,2\n", "labels": "0,label\n0,red\n1,red\n"},
        {"features": "name,0,1\nann,1,2\nbob,2,3\neve,3,4\n"},
    ],
)
def test_names_of_columns_are_not_taken_for_rows(read, texts):
    assert read(**texts).num_edges == 2 + ("edges" not in texts)


def test_a_column_of_ids_that_no_edge_has_is_named(read):
    with pytest.warns(UserWarning, match="such as 'red': all of column 'team'; call the column of ids id"):
        read(labels="team,name\nred,ann\nblue,bob\n")


# -- what programs write ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "edges",
    [
        "source, target\nann, bob\nbob , eve\neve,ann\n",
        '"source", "target"\n"ann", "bob"\n"bob", "eve"\n"eve", "ann"\n',
        "\ufeffsource;target\r\nann;bob\r\nbob;eve\r\neve;ann\r\n",
        "\n# a comment\n\nsource,target,\nann,bob,\nbob,eve,\n\neve,ann,\n",
    ],
)
def test_one_graph_in_many_forms(read, edges):
    graph = read(edges=edges, labels="id, label\nann, red\nbob, blue\neve, red\n")
    assert graph.id.tolist() == ["ann", "bob", "eve"]
    assert graph.adjacency.to_dense().tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert graph.y.tolist() == [1, 0, 1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("edges", ["0 1 \n1 2 \n", "0  1\n1  2\n", "0, 1\n1, 2\n"])
def test_numbers_with_spaces_or_commas_to_spare(read, edges):
    graph = read(edges=edges)
    assert (graph.id, graph.adjacency.to_dense().tolist()) == (None, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])


def test_the_index_of_pandas_is_neither_end_nor_feature_nor_label(read):
    with pytest.warns(UserWarning, match="a column without a name is left out") as said:
        graph = read(
            edges=",who,whom\n0,ann,bob\n1,bob,eve\n",
            features="Unnamed: 0,id,x\n0,ann,5\n1,bob,6\n2,eve,7\n",
            labels=",id,team\n0,ann,red\n1,bob,blue\n",
        )
    assert len(said) == 3
    assert (graph.id.tolist(), graph.x.tolist()) == (["ann", "bob", "eve"], [[5], [6], [7]])
    assert graph.class_names == ("blue", "red")


def test_an_index_that_holds_the_ids_is_read(read):
    assert read(features=",x\nann,5\nbob,6\neve,7\n").x.tolist() == [[5], [6], [7]]


def test_a_line_of_names_may_be_long(read):
    names, row = ",".join(f"feature_{place:09d}" for place in range(5000)), ",1" * 5000
    assert read(features=f"id,{names}\nann{row}\nbob{row}\neve{row}\n").num_features == 5000


def test_another_encoding_is_one_line(tmp_path):
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "edges.csv").write_bytes("source,target\nJörg,Ann\n".encode(encoding))
        line = fails(2, "import", tmp_path / "edges.csv", "--out", tmp_path / "g", through=called)
        assert "edges.csv: not a table that can be read (" in line
        assert "utf-8" in line.lower() or "utf8" in line.lower()


def test_codes_come_back_in_predictions(tmp_path):
    """From a table with codes, through a run, to a table with the same codes."""
    (tmp_path / "edges.csv").write_text(
        "from,to\n" + "".join(f"{i:03d},{(i + 2) % 40:03d}\n" for i in range(40))
    )
    (tmp_path / "y.csv").write_text(
        "id,label\n" + "".join(f"{i:03d},{'NA' if i > 36 else ('0123', '0456')[i % 2]}\n" for i in range(40))
    )
    folder, run = tmp_path / "g", tmp_path / "run"
    done = called(
        "import", tmp_path / "edges.csv", "--labels", tmp_path / "y.csv", "--undirected", "--out", folder
    )
    assert len(complaints(done)) == 1
    assert "has 3 labels such as 'NA'" in complaints(done)[0]
    flags = ["--features", "structure", "--parts", 2, "--epochs", 1, "--hidden", 4, "--quiet"]
    assert called("train", "--data", folder, *flags, "--out", run).returncode == 0
    assert called("predict", run, "--out", tmp_path / "p.csv").returncode == 0
    found = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert found["id"].tolist() == [f"{i:03d}" for i in range(40)]
    assert set(found["class_name"]) <= {"0123", "0456"}


# -- names of features ------------------------------------------------------------------------------


@pytest.fixture
def run_of_features(read, tmp_path):
    """A run on a graph with the features a, b and c."""
    graph = read(features="id,a,b,c\nann,1,2,3\nbob,4,5,6\neve,7,8,9\n", labels=labels_of("011"))
    lmc.fit(graph, lmc.GCN(3, 4, 2), lmc.FullBatch(), epochs=1, out=tmp_path / "run")
    return graph, lmc.load_run(tmp_path / "run")


def test_features_are_taken_by_name(read, run_of_features, tmp_path):
    graph, trained = run_of_features
    assert trained.feature_names == ["a", "b", "c"]
    expected = trained.predict(graph)
    other = read(features="id,c,a,more,b\nann,3,1,0,2\nbob,6,4,0,5\neve,9,7,0,8\n")
    other.save(tmp_path / "other")
    for same in (other, lmc.Graph.open(tmp_path / "other"), other.to(torch.float64)):
        assert same.feature_names == ("c", "a", "more", "b")
        assert torch.equal(trained.predict(same), expected)
    unnamed = other.with_features(graph.x[:, [2, 0, 1]])
    assert unnamed.feature_names is None
    assert not torch.equal(trained.predict(unnamed), expected)
    assert torch.equal(trained.predict(other.with_features(graph.x)), expected)


def test_a_feature_that_is_missing_is_named(read, run_of_features):
    _, trained = run_of_features
    other = read(features="id,a,x,c,y\nann,1,2,3,4\nbob,4,5,6,7\neve,7,8,9,1\n")
    with pytest.raises(
        lmc.ArgumentError, match=r"^graph: has no feature 'b', and the model of .*run takes it$"
    ):
        trained.predict(other)


def test_names_of_features_are_those_of_columns(read, tmp_path):
    assert read(features="1,2.5\n2,3.5\n", edges="source,target\n1,2\n").feature_names is None
    lists = pd.DataFrame({"id": [0, 1], "v": [[1.0, 2.0], [3.0, 4.0]], "a": [5, 6]})
    lists.to_parquet(tmp_path / "x.parquet")
    (tmp_path / "e.csv").write_text("source,target\n0,1\n")
    graph = lmc.read_tables(tmp_path / "e.csv", features=tmp_path / "x.parquet")
    assert graph.feature_names == ("v[0]", "v[1]", "a")
    for names, line in [
        (["a"], "length 1: must be 3"),
        ("aba", "'a' is there twice"),
        ([1, 2, 3], "strings"),
    ]:
        with pytest.raises(lmc.GraphError, match=line):
            lmc.Graph([[0], [1]], torch.ones(2, 3), feature_names=names)
