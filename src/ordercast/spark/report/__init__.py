"""Reports: one page of HTML with plots, from the lake's tables and from benchmarks' results; it loads nothing.

`run` and `bench` say what is shown, `plot` and `timeline` draw it as SVG, `axis` divides scales, `page` puts it
together.
"""
