// Package browsertest drives Debian's Chromium for the tests of the page of
// `handsel web`, and for the pictures of it in the docs.
//
// A Browser is one Chromium behind one chromedriver, spoken to by the WebDriver
// protocol over plain HTTP: no module is needed for that. It has a home directory
// of its own, reaches this machine only, keeps a log of all that the page asked for
// and said, and is gone when Close returns. A Stage is a handsel home with
// stand-in agents. The tests are behind the build tag "browser": a browser is not
// started once for each way in which the other tests are built.
package browsertest
