// A pasted message has names and numbers that no page has, and Sphinx finds only pages with every word.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const search = Search.performTermsSearch;
  Search.performTermsSearch = (searchTerms, excludedTerms) => {
    const { terms, titleterms } = Search._index;
    const isKnown = (word) => Object.hasOwn(terms, word) || Object.hasOwn(titleterms, word);
    const known = [...searchTerms].filter(isKnown);
    return search(known.length > 1 ? new Set(known) : searchTerms, excludedTerms);
  };
});
