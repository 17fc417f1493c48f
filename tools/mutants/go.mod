module github.com/handsel/handsel/tools/mutants

go 1.26.0
