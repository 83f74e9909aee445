"""Which columns of tables hold ids and splits."""

import pandas as pd
import pytest

import lmc


@pytest.mark.filterwarnings("ignore:.*a column without a name is left out")
@pytest.mark.parametrize(
    ("name", "text", "taken"),
    [
        ("features", ",user_id,f\n0,2,30\n1,1,10\n2,0,0\n", "the column without a name"),
        ("features", "f,user_id\n2,0\n1,1\n0,2\n", "column 'f'"),
        ("labels", ",user_id,label\n0,2,1\n1,1,0\n2,0,0\n", "the column without a name"),
        ("splits", "row,user_id,split\n0,2,train\n1,1,val\n2,0,test\n", "column 'row'"),
        ("splits", ",user_id,split\n0,2,train\n1,1,val\n", "the column without a name"),
        ("splits", ",user_id,train,val\n0,2,1,0\n", "the column without a name"),
        ("features", ",user_id,f\n0,1,30\n1,2,10\n2,0,0\n3,7,0\n", "the column without a name"),
    ],
)
def test_two_columns_that_may_hold_the_ids_are_named(tmp_path, name, text, taken):
    files = {"edges": tmp_path / "edges.csv", name: tmp_path / f"{name}.csv"}
    files["edges"].write_text("source,target\n0,1\n1,2\n")
    files[name].write_text(text)
    line = f"{name}.csv: ids may be in {taken} or column 'user_id'; rename the one that has them to id"
    with pytest.raises(lmc.DatasetError, match=line):
        lmc.read_tables(**files)
    files[name].write_text(text.replace("user_id", "id"))
    assert lmc.read_tables(**files).num_nodes >= 3


def test_labels_may_be_the_numbers_of_the_nodes(tmp_path):
    files = {"edges": tmp_path / "edges.csv", "labels": tmp_path / "labels.csv"}
    files["edges"].write_text("source,target\n0,1\n1,2\n")
    files["labels"].write_text("node_number,label\n0,0\n1,1\n2,2\n")
    assert lmc.read_tables(**files).y.tolist() == [0, 1, 2]


def test_a_split_may_be_a_column_for_each_part(tmp_path):
    files = {name: tmp_path / f"{name}.csv" for name in ("edges", "labels", "splits")}
    files["edges"].write_text("source,target\na,b\nb,c\n")
    files["labels"].write_text("id,label\na,0\nb,1\nc,1\n")
    files["splits"].write_text("id,Train,valid,test\nc,1,0,0\na,0,2,0\n")
    with pytest.raises(lmc.DatasetError, match=r"column 'valid' must hold zeros and ones"):
        lmc.read_tables(**files)
    files["splits"].write_text("id,Train,valid,test\nc,1,0,0\na,0,1,1\n")
    with pytest.raises(lmc.DatasetError, match=r"splits.csv: row 2 is in two of Train, valid, test; a node"):
        lmc.read_tables(**files)
    files["splits"].write_text("id,Train,valid,test\nc,1,0,0\na,0,1,0\n")
    graph = lmc.read_tables(**files)
    masks = graph.train_mask, graph.val_mask, graph.test_mask
    assert [mask.tolist() for mask in masks] == [[False, False, True], [True, False, False], [False] * 3]


def test_ids_in_parquet_may_be_whole_numbers_with_a_decimal_point(tmp_path):
    pd.DataFrame({"source": [0, 7], "target": [7, 9]}).to_parquet(tmp_path / "edges.parquet")
    labels = tmp_path / "labels.parquet"
    pd.DataFrame({"id": [9.0, 0.0], "label": [1, 0]}).to_parquet(labels)
    graph = lmc.read_tables(tmp_path / "edges.parquet", labels=labels)
    assert (graph.id.tolist(), graph.y.tolist()) == ([0, 7, 9], [0, -1, 1])
    pd.DataFrame({"id": [9.5, 0.0], "label": [1, 0]}).to_parquet(labels)
    with pytest.raises(lmc.DatasetError, match="column 'id' holds double: must fit into int64"):
        lmc.read_tables(tmp_path / "edges.parquet", labels=labels)


def test_of_several_splits_the_first_is_taken_and_others_are_named(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "labels.csv").write_text("id,label\na,0\nb,1\nc,1\n")
    (tmp_path / "splits.csv").write_text("id,split_0,split_1\na,train,test\nb,val,train\nc,test,val\n")
    files = {name: tmp_path / f"{name}.csv" for name in ("edges", "labels", "splits")}
    with pytest.warns(UserWarning, match="several splits: 'split_0' is taken, not 'split_1'"):
        graph = lmc.read_tables(**files)
    assert [str(graph.id[place]) for place in graph.train_mask.nonzero()[:, 0]] == ["a"]
