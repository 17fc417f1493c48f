module github.com/handsel/handsel/tools/screenshots/top

go 1.26.0
