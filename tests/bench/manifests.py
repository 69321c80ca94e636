"""SidecarJob manifests for the runs, written as JSON, which is YAML."""

import json

FILTERS = ["clarity", "texture", "luma", "saturation", "color_entropy", "edge_density"]
MARKERS = [{"contains": f"/{source}/", "source": source} for source in ("source_a", "source_b", "source_c")]


def sidecar_job(name, main_prefix, output_prefix, columns, pipeline, **spec):
    return {
        "apiVersion": "sidecarjob.dev/v1alpha1",
        "kind": "SidecarJob",
        "metadata": {"name": name},
        "spec": {
            "dataset": {
                "mainPrefix": f"{main_prefix}/",
                "keyColumn": "s3_path",
                "imageColumn": "image",
                "sources": {"markers": MARKERS},
            },
            "columns": columns,
            "pipeline": pipeline,
            "output": {"prefix": f"{output_prefix}/", "skipExisting": True},
            **spec,
        },
    }


def join(main_prefix, index_prefix, output_prefix, **spec):
    names = [f"filter_{name}" for name in FILTERS]
    columns = [{"name": "source", "type": "string"}, {"name": "file_size", "type": "int64"}]
    columns += [{"name": name, "type": f"{name}_v1"} for name in names]
    steps = [
        {"extractScaffold": {}},
        {"joinFromParquet": {"source": f"{index_prefix}/", "columns": ["source", "file_size", *names],
                             "mode": "OverwriteAll"}},
    ]
    return sidecar_job("bench-join", main_prefix, output_prefix, columns, steps, **spec)


def merge(base_prefix, siblings_prefix, output_prefix):
    def step(name, **more):
        return {"mergeFromSidecar": {"sourcePrefix": f"{siblings_prefix}/{name}/", "mode": "PreferSidecar", **more}}

    columns = [
        {"name": "score_dqm", "type": "dqm_score"},
        {"name": "score_aes", "type": "score_v1"},
        {"name": "detailed_description", "type": "string"},
        {"name": "ocr_text", "type": "string"},
        # Of a sibling that some shards may lack.
        {"name": "caption", "type": "string"},
    ]
    steps = [
        {"extractScaffold": {}},
        step("score_dqm", columns=["score_dqm"], targetKeyColumn="image_key"),
        step("score_aes"),
        step("recaption", required=False),
    ]
    schemas = {"dqm_score": {"raw_score": "float64", "error": "string"}}
    return sidecar_job("bench-merge", base_prefix, output_prefix, columns, steps, schemas=schemas)


NINE = ["exifRotation", "exifMetadata", "saturation", "jpegArtifact", "clarity", "texture", "luma", "colorEntropy",
        "edgeDensity"]


def filters(main_prefix, output_prefix, names):
    return sidecar_job("bench-filters", main_prefix, output_prefix, [], [{"computeFilters": {"filters": names}}])


def write(path, job):
    path.write_text(json.dumps(job, indent=2) + "\n")
    return path
