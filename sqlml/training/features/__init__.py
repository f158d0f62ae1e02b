"""What a model learns from: columns, their parts, and the pipeline that makes numbers of them."""
